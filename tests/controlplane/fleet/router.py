"""The real vllm-router of a pod, as a process that listens on the pod's address."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp

from oasis_runtime.contract import ROUTER_PORT

PROGRAM = Path(sys.executable).parent / "vllm-router"


class Router:
    """``kubeconfig``: with the rights of the pod's service account."""

    def __init__(self, address: str, pod: dict[str, Any], kubeconfig: Path, log: Path) -> None:
        self.address = address
        self._container = pod["spec"]["containers"][0]
        self._kubeconfig = kubeconfig
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        # The last of two equal flags counts.
        here = [f"--host={self.address}", f"--prometheus-host={self.address}"]
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                PROGRAM,
                *self._container["args"],
                *here,
                stdout=log,
                stderr=log,
                env={**os.environ, "KUBECONFIG": str(self._kubeconfig)},
            )

    async def ready(self, session: aiohttp.ClientSession) -> bool:
        """What its readiness probe asks."""
        url = f"http://{self.address}:{ROUTER_PORT}/readiness"
        try:
            async with session.get(url, timeout=aiohttp.ClientTimeout(total=5)) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def end(self, grace_seconds: float) -> None:
        """As a kubelet does it: ``preStop``, SIGTERM, and in the end SIGKILL."""
        assert self._process is not None
        await asyncio.sleep(self._container["lifecycle"]["preStop"]["sleep"]["seconds"])
        self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), grace_seconds)
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
