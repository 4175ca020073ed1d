"""The fleet beside a test: node, routes, kubelet and clients in a thread of their own."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import subprocess
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from testbed.controlplane.bed import ControlPlane
from testbed.controlplane.commands import FAKE_NODE_ANNOTATION
from testbed.controlplane.fakenodes import fake_node
from tests.controlplane.fleet.api import Api, Manifest
from tests.controlplane.fleet.clients import Clients
from tests.controlplane.fleet.kubelet import Kubelet

NODE = "fleet"
LABEL = "test.oasiskv.io/machine"
ADDRESSES = ipaddress.ip_network("10.144.0.0/16")
"""Beside those of KWOK's pods, to which nobody answers."""
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}


def on_fleet(**role: Any) -> Manifest:
    """A role, or the router, whose pods run on the fleet's node."""
    taint = {"key": LABEL, "operator": "Exists"}
    return {"nodeSelector": {LABEL: NODE}, "tolerations": [taint], **role}


@contextmanager
def fleet(plane: ControlPlane, namespace: str, logs: Path) -> Iterator[Fleet]:
    """The node is there meanwhile, and what runs on it answers on this machine."""
    local = ["local", str(ADDRESSES), "dev", "lo"]
    subprocess.run(["ip", "route", "replace", *local], check=True)
    plane.kubectl("create", "-f", "-", manifest=_node())
    status = {"status": {**_node()["status"], "conditions": [READY]}}
    plane.kubectl("patch", "node", NODE, "--subresource=status", "-p", json.dumps(status))
    running = Fleet(plane, namespace, logs)
    try:
        running.start()
        yield running
    finally:
        running.stop()
        plane.kubectl("delete", "node", NODE)
        subprocess.run(["ip", "route", "del", *local], check=True)


def _node() -> Manifest:
    """One that KWOK leaves alone."""
    node = fake_node(NODE, cpu="1000", memory="4Ti", pods="2000")
    del node["metadata"]["annotations"][FAKE_NODE_ANNOTATION.partition("=")[0]]
    node["metadata"]["labels"][LABEL] = NODE
    node["spec"] = {"taints": [{"key": LABEL, "value": NODE, "effect": "NoSchedule"}]}
    return node


class Fleet:
    """What runs on the node, and who asks it."""

    def __init__(self, plane: ControlPlane, namespace: str, logs: Path) -> None:
        self._plane = plane
        self._namespace = namespace
        self._logs = logs
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._asked: Future[None] | None = None
        self._background: list[Future[None]] = []

    def start(self) -> None:
        self._thread.start()
        self._call(self._start())

    async def _start(self) -> None:
        self._api = Api(self._plane, self._namespace)
        hosts = map(str, ADDRESSES.hosts())
        self._kubelet = Kubelet(self._api, NODE, hosts, self._kubeconfig(), self._logs)
        self._clients = Clients(self._api, self._kubelet)
        self._enough = asyncio.Event()
        self._background = [
            asyncio.run_coroutine_threadsafe(work, self._loop)
            for work in (self._kubelet.run(), self._clients.watch_services())
        ]

    def _kubeconfig(self) -> Any:
        return cache(lambda account: self._plane.kubeconfig_for(account, self._namespace))

    def ask(self, names: Iterable[str]) -> None:
        """Requests to all of these from now on."""
        work = self._clients.ask(names, self._enough)
        self._asked = asyncio.run_coroutine_threadsafe(work, self._loop)

    def answered(self) -> dict[str, int]:
        """Requests that got a whole answer, by OasisDeployment."""
        self.require_alive()
        return dict(self._clients.answered)

    def failures(self) -> list[str]:
        return list(self._clients.failures)

    def require_alive(self) -> None:
        for work in (*self._background, *([self._asked] if self._asked else ())):
            if work.done():
                work.result()
                raise AssertionError("the fleet ended by itself")

    def finish(self) -> None:
        """No requests more; returns when all are answered."""
        self._loop.call_soon_threadsafe(self._enough.set)
        assert self._asked is not None
        self._asked.result(timeout=120)
        self._asked = None

    def stop(self) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _stop(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        # Nobody is here any more to end them.
        await asyncio.gather(*(self._api.remove(pod.body) for pod in self._kubelet.pods.values()))
        await self._api.close()

    def _call(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=60)
