"""Many OasisDeployments that change while clients ask them: no request fails.

Engines are fake, but drain as real ones do; routers are real. ``OASIS_FLEET_DEPLOYMENTS=50`` asks
for more than the suite has time for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import wait
from tests.controlplane.api_client import ApiClient
from tests.controlplane.fleet.fleet import Fleet, fleet, on_fleet
from tests.controlplane.world import Manifest, World, spec

pytestmark = pytest.mark.usefixtures("operator")

DEPLOYMENTS = int(os.environ.get("OASIS_FLEET_DEPLOYMENTS", "3"))
AT_ONCE = 10
"""That are updated at the same time: a router for each is a process."""
SECONDS = 90.0 + 10 * DEPLOYMENTS
NAMES = [f"chat-{number}" for number in range(DEPLOYMENTS)]


def served(budget: int = 2048, decodes: int = 2) -> Manifest:
    return spec(
        prefill=on_fleet(),
        decode=on_fleet(replicas=decodes),
        router=on_fleet(),
        kv={"budgetTokens": budget},
        updates={"drainSeconds": 60},
    )


@pytest.fixture
def running(world: World, tmp_path: Path) -> Iterator[Fleet]:
    with fleet(world.plane, world.namespace, tmp_path) as found:
        yield found


def until_settled(world: World, running: Fleet, names: list[str], pods: int) -> None:
    """Until each is Ready with so many pods, and none of another revision or that is going."""
    server = ApiClient(world.plane)

    def unsettled() -> list[str]:
        found = server.list(world.namespace)
        counts = dict.fromkeys(names, 0)
        for pod in server.pods(world.namespace):
            name = pod["metadata"]["labels"]["oasiskv.io/deployment"]
            counts[name] = counts.get(name, 0) + 1
        return [name for name in names if counts[name] != pods or not _ready(found[name])]

    try:
        wait.until(
            lambda: not unsettled(), f"{names} settled", SECONDS, running.require_alive, every=0.5
        )
    except Exception as late:
        raise AssertionError(f"{late}: {unsettled()}; {running.failures()[:10]}") from late


def _ready(body: Manifest) -> bool:
    wanted = {"Ready", "PrefillReady", "DecodeReady", "RouterReady"}
    now = body["metadata"]["generation"]
    true = {
        item["type"]
        for item in body.get("status", {}).get("conditions", [])
        if item["status"] == "True" and item["observedGeneration"] == now
    }
    return wanted <= true


def until_asked_more(running: Fleet, more: int) -> None:
    before = running.answered()
    wait.until(
        lambda: all(running.answered().get(n, 0) >= before.get(n, 0) + more for n in NAMES),
        f"{more} answers from each",
        SECONDS,
        running.require_alive,
    )


@pytest.mark.timeout(300 + 60 * DEPLOYMENTS)
def test_updates_and_fewer_pods_fail_no_request(world: World, running: Fleet) -> None:
    waves = [NAMES[start : start + AT_ONCE] for start in range(0, DEPLOYMENTS, AT_ONCE)]
    for wave in waves:
        for name in wave:
            world.apply(name, served())
        until_settled(world, running, wave, pods=4)
    running.ask(NAMES)
    until_asked_more(running, 2)
    for changed, pods in ((served(budget=512), 4), (served(budget=512, decodes=1), 3)):
        for wave in waves:
            for name in wave:
                world.apply(name, changed)
            until_settled(world, running, wave, pods)
    until_asked_more(running, 2)
    running.finish()
    answered, failures = running.answered(), running.failures()
    print(f"{sum(answered.values())} requests answered, {len(failures)} failed")
    assert failures == []
    assert min(answered.values()) >= 4
