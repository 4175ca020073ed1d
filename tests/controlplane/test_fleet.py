"""Many OasisDeployments that change while clients ask them: no request fails.

Engines are fake, but drain as real ones do; routers are real. ``OASIS_FLEET_DEPLOYMENTS=50`` asks
for more than the suite has time for, and lets each go through all changes instead of one.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed import wait
from tests.controlplane.api_client import ApiClient
from tests.controlplane.evictions import evicted, until_evictable
from tests.controlplane.fleet.fleet import Fleet, fleet, on_fleet
from tests.controlplane.world import Manifest, World, spec

pytestmark = pytest.mark.usefixtures("operator")

DEPLOYMENTS = int(os.environ.get("OASIS_FLEET_DEPLOYMENTS", "3"))
ROUNDS = 3 if "OASIS_FLEET_DEPLOYMENTS" in os.environ else 1
AT_ONCE = 10
"""That change at the same time: a router of each revision is a process."""
SECONDS = 90.0 + 10 * DEPLOYMENTS


@dataclass
class Served:
    """What one of them is asked to be."""

    name: str
    decodes: int = 3
    budget: int = 2048

    @property
    def pods(self) -> int:
        return self.decodes + 2

    def apply(self, world: World) -> None:
        given = spec(
            prefill=on_fleet(),
            decode=on_fleet(replicas=self.decodes),
            router=on_fleet(),
            kv={"budgetTokens": self.budget},
            updates={"drainSeconds": 60},
        )
        world.apply(self.name, given)


def update(served: Served, world: World) -> None:
    served.budget = 512
    served.apply(world)


def drain(served: Served, world: World) -> None:
    """Of a node that one decode pod is on; the next one has to wait."""
    first, second, *_ = world.pods(served.name, "decode")
    until_evictable(world, first)
    assert not evicted(world, second)


def scale_down(served: Served, world: World) -> None:
    served.decodes = 2
    served.apply(world)


CHANGES: tuple[Callable[[Served, World], None], ...] = (update, drain, scale_down)


@pytest.fixture
def running(world: World, tmp_path: Path) -> Iterator[Fleet]:
    with fleet(world.plane, world.namespace, tmp_path) as found:
        yield found


def until_settled(world: World, running: Fleet, all_served: Sequence[Served]) -> None:
    """Until each is Ready with its pods, and none of another revision or that is going."""
    server = ApiClient(world.plane)

    def unsettled() -> list[str]:
        found = server.deployments(world.namespace)
        counts = Counter(
            pod["metadata"]["labels"]["oasiskv.io/deployment"]
            for pod in server.pods(world.namespace)
        )
        return [
            served.name
            for served in all_served
            if counts[served.name] != served.pods or not _ready(found[served.name])
        ]

    try:
        wait.until(lambda: not unsettled(), "their end", SECONDS, running.require_alive, every=0.5)
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


def until_asked_more(running: Fleet, all_served: Sequence[Served], more: int) -> None:
    before = running.answered()
    wait.until(
        lambda: all(
            running.answered().get(served.name, 0) >= before.get(served.name, 0) + more
            for served in all_served
        ),
        f"{more} answers from each",
        SECONDS,
        running.require_alive,
    )


@pytest.mark.timeout(300 + 60 * DEPLOYMENTS)
def test_updates_drains_and_fewer_pods_fail_no_request(world: World, running: Fleet) -> None:
    all_served = [Served(f"chat-{number}") for number in range(DEPLOYMENTS)]
    waves = [all_served[start : start + AT_ONCE] for start in range(0, DEPLOYMENTS, AT_ONCE)]
    for wave in waves:
        for served in wave:
            served.apply(world)
        until_settled(world, running, wave)
    running.ask(served.name for served in all_served)
    until_asked_more(running, all_served, 2)
    for number in range(ROUNDS):
        for wave in waves:
            for place, served in enumerate(wave):
                CHANGES[(place + number) % len(CHANGES)](served, world)
            until_settled(world, running, wave)
    until_asked_more(running, all_served, 2)
    running.finish()
    answered, failures = running.answered(), running.failures()
    print(f"{sum(answered.values())} requests answered, {len(failures)} failed")
    assert failures == []
    assert min(answered.values()) >= 4
