"""What a node drain does: evictions, one pod of a role at a time."""

from __future__ import annotations

import pytest

from testbed import wait
from tests.controlplane.evictions import evicted, until_evictable
from tests.controlplane.world import SECONDS, World, fake, spec

pytestmark = pytest.mark.usefixtures("operator")


def test_the_second_decode_pod_is_evicted_only_when_the_first_is_replaced(world: World) -> None:
    slow = fake("load-delay", "3s")
    world.apply("chat", spec(prefill=None, decode={"replicas": 2, **slow}))
    world.until_ready("chat")
    first, second = world.pods("chat", "decode")
    until_evictable(world, first)
    assert not evicted(world, second)
    until_evictable(world, second)
    staying = world.pods("chat", "decode")
    assert any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for pod in staying
        for condition in pod["status"]["conditions"]
    ), "nobody serves"


def test_a_pod_that_serves_nothing_keeps_no_node_from_being_drained(world: World) -> None:
    world.apply("chat", spec(prefill=None, decode={"replicas": 2, **fake("never-ready")}))
    world.until_pod("chat", "decode")
    wait.until(lambda: len(world.pods("chat", "decode")) == 2, "two pods", SECONDS)
    for pod in world.pods("chat", "decode"):
        until_evictable(world, pod)
