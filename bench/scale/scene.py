"""One control plane, the operator as a process beside it, and how busy they are."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench.scale import fleet
from bench.scale.api import Api
from bench.scale.audit import AuditLog
from testbed.controlplane.bed import ControlPlane
from tests.controlplane import release
from tests.controlplane.operator_process import NAMESPACE, OperatorProcess

FLEET = "fleet"
"""Namespace of the OasisDeployments."""
SCRIPT = "script"
READY_SECONDS = 400.0
QUIET_SECONDS = 2.0
SETTLE_SECONDS = 120.0


async def until(
    holds: Callable[[], Awaitable[bool]], what: str, timeout: float, every: float = 0.25
) -> None:
    """Waits for a condition; ``TimeoutError`` that names ``what``."""
    deadline = time.monotonic() + timeout
    while not await holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not happen within {timeout:.0f} s")
        await asyncio.sleep(every)


def tell(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_megabytes(pid: int) -> float:
    """Most resident memory that a process has had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def chart_settings() -> dict[str, str]:
    """Environment of the operator as the chart's defaults make it."""
    values = yaml.safe_load((release.CHART / "values.yaml").read_text())
    return {
        "OASIS_RESYNC_SECONDS": str(values["resyncSeconds"]),
        "OASIS_WRITES_PER_SECOND": str(values["writesPerSecond"]),
    }


@dataclass
class Scene:
    """The operator is another process after a restart."""

    plane: ControlPlane
    api: Api
    audit: AuditLog
    folder: Path
    deployments: int
    operator: OperatorProcess | None = None

    def start(self) -> OperatorProcess:
        """One with the chart's rights and settings."""
        kubeconfig = self.plane.kubeconfig_for(release.NAME, NAMESPACE)
        log = self.folder / "operator.log"
        self.operator = OperatorProcess("bench", kubeconfig, log, chart_settings())
        return self.operator

    @property
    def running(self) -> OperatorProcess:
        if self.operator is None:
            raise AssertionError("the operator was not started")
        self.operator.require_alive()
        return self.operator

    async def settled(self) -> None:
        """Waits until the operator has had nothing to write for a while."""
        written, since = -1.0, time.monotonic()

        async def quiet() -> bool:
            nonlocal written, since
            now = self.running.writes()
            if now != written or self.running.metric("oasis_operator_queue_depth"):
                written, since = now, time.monotonic()
            return time.monotonic() - since > QUIET_SECONDS

        await until(quiet, "the operator at rest", SETTLE_SECONDS)

    async def until_available(self, namespace: str, pods: int) -> None:
        async def all_there() -> bool:
            column = await self.api.column(fleet.WORKLOADS.format(namespace), "Available")
            return sum(map(int, column)) == pods

        await until(all_there, f"{pods} pods in {namespace}", READY_SECONDS)

    async def until_ready(self) -> None:
        async def ready() -> bool:
            column = await self.api.column(fleet.ODEPS.format(FLEET), "Ready")
            return column == ["True"] * self.deployments

        await until(ready, "every OasisDeployment Ready", READY_SECONDS)

    async def emptied(self, namespace: str) -> None:
        """Deletes every Deployment of a namespace, and the namespace; waits for the pods' end."""
        await self.api.request(
            "DELETE", fleet.WORKLOADS.format(namespace), {"propagationPolicy": "Background"}
        )

        async def gone() -> bool:
            return not await self.api.column(f"/api/v1/namespaces/{namespace}/pods", "Name")

        await until(gone, f"the end of the pods in {namespace}", READY_SECONDS)
        await self.api.request("DELETE", f"/api/v1/namespaces/{namespace}")

    def busy(self) -> dict[str, float]:
        """CPU seconds so far of every program."""
        found = {process.name: cpu_seconds(process.pid) for process in self.plane.processes}
        if self.operator is not None:
            found["operator"] = cpu_seconds(self.operator.process.pid)
        return found | {SCRIPT: time.process_time()}


@contextlib.contextmanager
def told_cpu(scene: Scene, what: str) -> Iterator[Callable[[], float]]:
    """Gives the CPU seconds that all programs but the script have taken since, and prints those of
    each in the end."""
    before, start = scene.busy(), time.monotonic()

    def spent() -> dict[str, float]:
        return {name: now - before.get(name, 0.0) for name, now in scene.busy().items()}

    yield lambda: sum(seconds for name, seconds in spent().items() if name != SCRIPT)
    parts = ", ".join(f"{name} {seconds:.1f}" for name, seconds in spent().items())
    tell(f"{what}: {time.monotonic() - start:.1f} s; CPU seconds: {parts}")
