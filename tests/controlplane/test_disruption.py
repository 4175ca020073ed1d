"""What a node drain does: evictions, one pod of a role at a time."""

from __future__ import annotations

import pytest

from testbed import wait
from testbed.problem import Problem
from tests.controlplane.world import SECONDS, Manifest, World, fake, spec

pytestmark = pytest.mark.usefixtures("operator")


def evicted(world: World, pod: Manifest) -> bool:
    """Asks as ``kubectl drain`` does; whether the API server agrees."""
    name = pod["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    path = f"/api/v1/namespaces/{world.namespace}/pods/{name}/eviction"
    try:
        world.plane.kubectl("create", "--raw", path, "-f", "-", manifest=eviction)
    except Problem as refused:
        if "disruption budget" not in str(refused):
            raise
        return False
    return True


def until_evictable(world: World, pod: Manifest) -> None:
    wait.until(lambda: evicted(world, pod), "an eviction that is allowed", SECONDS)


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
