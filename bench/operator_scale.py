"""The operator with 200 OasisDeployments of 10 pods each, on fake nodes and a real control plane.

    python bench/operator_scale.py
    python bench/operator_scale.py --deployments 20     # a quick look; writes no result

First the base line: 200 plain Deployments of 10 pods each, created by a script. Then as many pods
with all other objects of 200 OasisDeployments, 17 each, applied by the script, which has them ready
(``scripted_*``: what no operator can do without). Then as 200 OasisDeployments, with the operator
as a process of its own that has the chart's rights and settings.
``ready_ratio_*`` compare the times until all 2,000 pods are available, ``cpu_ratio_*`` the CPU time
of all programs until then, in which other work on the machine does not count.

Then one spec after another changes, ten a second (``apply_*``: from sending the change of decode's
replicas to the end of the operator's apply, by the API server's audit log), then all at once
(``burst200_*``: from sending the first one), then nothing (``noop_writes``, ``idle_cores``), then
the operator restarts (``restart_*``), and last the API server stands still for a minute, in which
the operator loses its lease, ends, and is started again as by a kubelet (``away_60s_*``).

Nothing runs in the pods, and all programs share the machine's cores: the API server is the busiest.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import os
import signal
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import result
from bench.scale import fleet
from bench.scale.api import Manifest, connected
from bench.scale.audit import AuditLog, Request
from bench.scale.scene import (
    FLEET,
    SETTLE_SECONDS,
    Scene,
    cpu_seconds,
    peak_megabytes,
    tell,
    told_cpu,
    until,
)
from testbed import processes
from testbed.controlplane import bed
from testbed.controlplane.bed import ControlPlane
from tests.controlplane import release
from tests.controlplane.converged import differences
from tests.controlplane.world import World

PLAIN, SCRIPTED = "plain", "scripted"
DEPLOYMENTS = 200
NODES = 200
CHANGES_PER_SECOND = 10
CHANGES = 300
IDLE_SECONDS = 65.0
"""Two resyncs and more."""
AWAY_SECONDS = 60.0

Metrics = dict[str, float]


def percentile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def plain(scene: Scene) -> Metrics:
    """Deployments with the same number of pods and nothing around them."""
    path = fleet.WORKLOADS.format(PLAIN)
    manifests = [fleet.plain_deployment(number) for number in range(scene.deployments)]
    start = time.monotonic()
    with told_cpu(scene, "plain Deployments") as spent:
        await scene.api.create(path, manifests)
        await scene.until_available(PLAIN, scene.deployments * fleet.PODS)
        found = {"plain_ready_2000_pods_s": time.monotonic() - start, "plain_cpu_s": spent()}
    await scene.emptied(PLAIN)
    return found


async def scripted(scene: Scene) -> Metrics:
    """The objects of the OasisDeployments, applied by a script that has them ready."""
    wanted = [fleet.objects(number, SCRIPTED) for number in range(scene.deployments)]
    start = time.monotonic()
    with told_cpu(scene, "the same objects by a script") as spent:
        await scene.api.apply([(fleet.path_of(item), item) for items in wanted for item in items])
        await scene.until_available(SCRIPTED, scene.deployments * fleet.PODS)
        found = {"scripted_ready_2000_pods_s": time.monotonic() - start, "scripted_cpu_s": spent()}
    await scene.emptied(SCRIPTED)
    return found


async def created(scene: Scene) -> Metrics:
    """All OasisDeployments, from none to Ready."""
    manifests = [fleet.oasis_deployment(number) for number in range(scene.deployments)]
    scene.audit.since_last()
    start = time.monotonic()
    with told_cpu(scene, "OasisDeployments") as spent:
        await scene.api.create(fleet.ODEPS.format(FLEET), manifests)
        await scene.until_available(FLEET, scene.deployments * fleet.PODS)
        pods, cpu = time.monotonic() - start, spent()
        await scene.until_ready()
        conditions = time.monotonic() - start
    await scene.settled()
    requests = [request for request in scene.audit.since_last() if request.about_the_fleet]
    reconciles = scene.running.metric("oasis_operator_reconciles_total")
    return {
        "ready_2000_pods_s": pods,
        "ready_200_conditions_s": conditions,
        "ready_cpu_s": cpu,
        "requests_per_deployment": len(requests) / scene.deployments,
        "status_writes_per_deployment": sum(r.subresource == "status" for r in requests)
        / scene.deployments,
        "reconciles_per_deployment": reconciles / scene.deployments,
        "requests_per_reconcile": len(requests) / reconciles,
        "operator_cpu_s_per_deployment": scene.busy()["operator"] / scene.deployments,
    }


async def scaled(scene: Scene, number: int, replicas: int) -> float:
    """Gives decode another number of pods; when the change was sent, in seconds since the epoch."""
    sent = time.time()
    path = f"{fleet.ODEPS.format(FLEET)}/{fleet.name_of(number)}"
    await scene.api.patch(path, {"spec": {"decode": {"replicas": replicas}}})
    return sent


class Applies:
    """When the operator was done with changing decode's Deployments."""

    def __init__(self, scene: Scene) -> None:
        self._audit = scene.audit
        self._audit.since_last()
        self._done: dict[str, list[float]] = defaultdict(list)

    def _read(self) -> None:
        for request in self._audit.since_last():
            if _changes_decode(request):
                self._done[request.name.partition("-")[0]].append(request.done)

    def _latency(self, number: int, sent: float) -> float | None:
        later = (done for done in self._done[fleet.name_of(number)] if done > sent)
        first = min(later, default=None)
        return None if first is None else first - sent

    async def latencies(self, sent: list[tuple[int, float]]) -> list[float]:
        """Seconds from each change to its apply; waits for the last one."""
        found: list[float | None] = []

        async def applied() -> bool:
            self._read()
            found[:] = [self._latency(number, at) for number, at in sent]
            return None not in found

        await until(applied, "the last apply", SETTLE_SECONDS, every=0.5)
        return [seconds for seconds in found if seconds is not None]


def _changes_decode(request: Request) -> bool:
    return (
        request.verb == "patch"
        and request.resource == "deployments"
        and request.name.endswith("-decode")
    )


async def changed_in_turn(scene: Scene) -> Metrics:
    """One change after another; a deployment comes again when all others had their turn."""
    applies, start, sent = Applies(scene), time.monotonic(), []
    with told_cpu(scene, f"{CHANGES} changes"):
        for count in range(CHANGES):
            await asyncio.sleep(max(0.0, start + count / CHANGES_PER_SECOND - time.monotonic()))
            number, turn = count % scene.deployments, count // scene.deployments
            sent.append((number, await scaled(scene, number, fleet.DECODE + 1 - turn % 2)))
        found = await applies.latencies(sent)
    return {
        "apply_p50_s": statistics.median(found),
        "apply_p99_s": percentile(found, 0.99),
        "apply_max_s": max(found),
    }


async def changed_at_once(scene: Scene) -> Metrics:
    """Every spec changes in the same moment."""
    await scene.settled()
    applies, start = Applies(scene), time.time()
    with told_cpu(scene, "all changed at once"):
        await asyncio.gather(
            *(scaled(scene, number, fleet.DECODE + 2) for number in range(scene.deployments))
        )
        sending = time.time() - start
        found = await applies.latencies([(number, start) for number in range(scene.deployments)])
    return {
        "burst200_p50_s": statistics.median(found),
        "burst200_p99_s": percentile(found, 0.99),
        "burst200_sending_s": sending,
    }


async def nothing_to_do(scene: Scene) -> Metrics:
    """Some resyncs of a fleet that is as it should be."""
    await scene.until_ready()
    await scene.settled()
    operator = scene.running
    scene.audit.since_last()
    writes, resyncs = operator.writes(), operator.metric("oasis_operator_resyncs_total")
    reconciles = operator.metric("oasis_operator_reconciles_total")
    start, before = time.monotonic(), cpu_seconds(operator.process.pid)
    with told_cpu(scene, "nothing to do"):
        await asyncio.sleep(IDLE_SECONDS)
    cores = (cpu_seconds(operator.process.pid) - before) / (time.monotonic() - start)
    requests = [request for request in scene.audit.since_last() if request.about_the_fleet]
    return {
        "idle_cores": cores,
        "idle_resyncs": operator.metric("oasis_operator_resyncs_total") - resyncs,
        "idle_reconciles": operator.metric("oasis_operator_reconciles_total") - reconciles,
        "idle_requests": len(requests),
        "noop_writes": operator.writes() - writes,
        "rss_mb": operator.metric("process_resident_memory_bytes") / 2**20,
        "rss_peak_mb": peak_megabytes(operator.process.pid),
    }


def versions(items: Iterable[Manifest], field: str) -> set[tuple[str, str]]:
    return {(item["metadata"]["uid"], str(item["metadata"].get(field))) for item in items}


async def state(scene: Scene) -> dict[str, set[tuple[str, str]]]:
    """Identity of every pod, generation of every Deployment, version of every OasisDeployment."""
    pods = await scene.api.items(f"/api/v1/namespaces/{FLEET}/pods")
    workloads = await scene.api.items(fleet.WORKLOADS.format(FLEET))
    odeps = await scene.api.items(fleet.ODEPS.format(FLEET))
    return {
        "pod": versions(pods, "name"),
        "workload": versions(workloads, "generation"),
        "status": versions(odeps, "resourceVersion"),
    }


async def restarted(scene: Scene) -> Metrics:
    """Another process on the same fleet."""
    before = await state(scene)
    if scene.running.stop() != 0:
        raise AssertionError("the operator did not stop by itself")
    scene.audit.since_last()
    start = time.monotonic()
    operator = scene.start().until_leading()
    leading = time.monotonic() - start

    async def looked_at_all() -> bool:
        return operator.metric("oasis_operator_reconciles_total") >= scene.deployments

    await until(looked_at_all, "a first look at everything", SETTLE_SECONDS)
    whole = time.monotonic() - start
    await scene.settled()
    after = await state(scene)
    changes = {what: len(before[what] ^ after[what]) for what in before}
    return {
        "restart_leading_s": leading,
        "restart_first_look_s": whole,
        "restart_pod_changes": changes["pod"] + changes["workload"],
        "restart_statuses_written": changes["status"],
        "restart_writes": sum(request.writes for request in scene.audit.since_last()),
    }


@contextlib.asynccontextmanager
async def kept_running(scene: Scene) -> AsyncIterator[list[int]]:
    """Starts the operator again whenever it ends; the exit statuses."""
    ended: list[int] = []

    async def restart() -> None:
        while True:
            operator = scene.operator
            status = operator.process.poll() if operator else None
            if operator and status is not None:
                ended.append(status)
                scene.operator = dataclasses.replace(operator)
            await asyncio.sleep(0.5)

    task = asyncio.create_task(restart())
    try:
        yield ended
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def away(scene: Scene) -> Metrics:
    """The API server answers nothing for a minute, not even with an error."""
    api = next(process for process in scene.plane.processes if process.name == "apiserver")
    async with kept_running(scene) as ended:
        os.kill(api.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(AWAY_SECONDS)
        finally:
            os.kill(api.pid, signal.SIGCONT)
        back = time.time()
        applies = Applies(scene)
        await scaled(scene, 0, fleet.DECODE)
        applied = (await applies.latencies([(0, back)]))[0]
        await scene.until_ready()
        ready = time.time() - back
        await scene.settled()
    if wrong := differences(World(scene.plane, FLEET)):
        raise AssertionError(f"after a minute without the API server: {wrong}")
    return {
        "away_60s_operator_ends": len(ended),
        "away_60s_apply_s": applied,
        "away_60s_all_ready_s": ready,
    }


async def measured(plane: ControlPlane, folder: Path, deployments: int) -> Metrics:
    async with connected(plane) as api:
        scene = Scene(plane, api, AuditLog(plane.layout.audit_log), folder, deployments)
        for name in (PLAIN, SCRIPTED, FLEET):
            await api.request("POST", "/api/v1/namespaces", fleet.namespace(name))
        found = await plain(scene) | await scripted(scene)
        try:
            scene.start().until_leading()
            for phase in (
                created, changed_in_turn, changed_at_once, nothing_to_do, restarted, away,
            ):  # fmt: skip
                new = await phase(scene)
                tell(", ".join(f"{name} {value:.3f}" for name, value in new.items()))
                found |= new
        except Exception:
            print((folder / "operator.log").read_text()[-5000:])
            raise
        finally:
            if scene.operator is not None:
                scene.operator.stop()
        return found | ratios(found)


def ratios(found: Metrics) -> Metrics:
    """What comes with the operator, next to both base lines."""
    ready = found["ready_2000_pods_s"]
    return {
        "ready_ratio_vs_plain_deployments": ready / found["plain_ready_2000_pods_s"],
        "ready_ratio_vs_scripted": ready / found["scripted_ready_2000_pods_s"],
        "cpu_ratio_vs_plain_deployments": found["ready_cpu_s"] / found["plain_cpu_s"],
        "cpu_ratio_vs_scripted": found["ready_cpu_s"] / found["scripted_cpu_s"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--deployments", type=int, default=DEPLOYMENTS)
    deployments = parser.parse_args().deployments
    owner = processes.this_process("bench")
    plane = bed.up(bed.named_folder(f"bench-{owner.pid}"), kwok=True, owner=owner)
    try:
        release.install(plane)
        plane.add_fake_nodes(NODES)
        with tempfile.TemporaryDirectory() as folder:
            metrics = asyncio.run(measured(plane, Path(folder), deployments))
    finally:
        plane.stop()
    for name, value in metrics.items():
        print(f"{name:34}{value:12.4f}")
    if deployments == DEPLOYMENTS:
        print(f"wrote {result.write('operator_scale', metrics)}")


if __name__ == "__main__":
    main()
