"""The kubelet of the fleet's node: it starts, probes, drains and ends what its pods say."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from oasis_operator.desired.metadata import COMPONENT_LABEL, DEPLOYMENT_LABEL, REVISION_LABEL
from oasis_runtime.contract import Role
from oasis_runtime.serve.drain import parsed
from tests.controlplane.fleet.api import Api, Manifest
from tests.controlplane.fleet.engine import Engine
from tests.controlplane.fleet.router import Router

PROBE_SECONDS = 1.0
LOAD_SECONDS = (0.2, 1.5)
"""What an engine takes to get ready, from and to."""


class Pod:
    """One pod and its program."""

    def __init__(self, body: Manifest, address: str) -> None:
        self.body = body
        self.address = address
        self.ready = False
        self.ending = asyncio.Event()

    @property
    def labels(self) -> dict[str, str]:
        found: dict[str, str] = self.body["metadata"]["labels"]
        return found


class Kubelet:
    """Of one node and one namespace."""

    def __init__(
        self,
        api: Api,
        node: str,
        addresses: Iterator[str],
        kubeconfig: Callable[[str], Path],
        logs: Path,
    ) -> None:
        """``kubeconfig``: of a service account, by its name."""
        self._api = api
        self._node = node
        self._addresses = addresses
        self._kubeconfig = kubeconfig
        self._logs = logs
        self._engines: dict[str, Engine] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.pods: dict[str, Pod] = {}
        """By uid, those that are there."""

    async def run(self) -> None:
        """Until it is cancelled; raises what goes wrong with any pod."""
        async with aiohttp.ClientSession() as session:
            try:
                async for event in self._api.watch("pods", self._mine()):
                    self._see(event["type"], event["object"], session)
                    for task in [task for task in self._tasks if task.done()]:
                        self._tasks.remove(task)
                        task.result()
            finally:
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)

    def _mine(self) -> dict[str, str]:
        return {"fieldSelector": f"spec.nodeName={self._node}"}

    def _see(self, event: str, body: Manifest, session: aiohttp.ClientSession) -> None:
        uid = body["metadata"]["uid"]
        if event == "ADDED":
            pod = self.pods[uid] = Pod(body, next(self._addresses))
            self._tasks.add(asyncio.create_task(self._live(pod, session)))
        if uid in self.pods:
            self.pods[uid].body = body
            if "deletionTimestamp" in body["metadata"]:
                self.pods[uid].ending.set()
        if event == "DELETED":
            del self.pods[uid]

    async def _live(self, pod: Pod, session: aiohttp.ClientSession) -> None:
        if pod.labels[COMPONENT_LABEL] == "router":
            await self._route(pod, session)
        else:
            await self._serve(pod)
        await self._api.remove(pod.body)

    async def _route(self, pod: Pod, session: aiohttp.ClientSession) -> None:
        name = pod.body["spec"]["serviceAccountName"]
        account = await asyncio.to_thread(self._kubeconfig, name)
        log = self._logs / f"{pod.body['metadata']['name']}.log"
        router = Router(pod.address, pod.body, account, log)
        await self._report(pod, ready=False)
        await router.start()
        try:
            while not pod.ending.is_set():
                ready = await router.ready(session)
                if ready != pod.ready:
                    await self._report(pod, ready=ready)
                await _set_within(pod.ending, PROBE_SECONDS)
            await router.end(pod.body["metadata"]["deletionGracePeriodSeconds"])
        finally:
            await router.kill()

    async def _serve(self, pod: Pod) -> None:
        told = parsed(_pre_stop(pod.body)[3:])
        engine = Engine(pod.address, told.role, pod.labels[REVISION_LABEL], self._engines)
        self._engines[pod.address] = engine
        await self._report(pod, ready=False)
        if not await _set_within(pod.ending, random.uniform(*LOAD_SECONDS)):
            await engine.start()
            await self._report(pod, ready=True)
            await pod.ending.wait()
            await engine.drain(told.limit, self._prefills_of(pod) if told.prefills else ())
        await engine.stop()
        del self._engines[pod.address]

    def _prefills_of(self, pod: Pod) -> Iterator[Engine]:
        """Of the same OasisDeployment, as the Service of its prefill pods names them."""
        name = pod.labels[DEPLOYMENT_LABEL]
        for other in self.pods.values():
            engine = self._engines.get(other.address)
            if engine and engine.role is Role.PREFILL and other.labels[DEPLOYMENT_LABEL] == name:
                yield engine

    async def _report(self, pod: Pod, *, ready: bool) -> None:
        pod.ready = ready
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        told = "True" if ready else "False"
        kinds = ("Ready", "ContainersReady", "Initialized", "PodScheduled")
        status: dict[str, Any] = {
            "phase": "Running",
            "podIP": pod.address,
            "podIPs": [{"ip": pod.address}],
            "conditions": [
                {
                    "type": kind,
                    "status": told if "Ready" in kind else "True",
                    "lastTransitionTime": now,
                }
                for kind in kinds
            ],
        }
        await self._api.report(pod.body, status)


def _pre_stop(pod: Manifest) -> list[str]:
    """Its command; ``python -m`` and a module come first."""
    command: list[str] = pod["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    return command


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True
