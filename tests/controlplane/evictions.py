"""Evictions, as ``kubectl drain`` asks for them."""

from __future__ import annotations

from testbed import wait
from testbed.problem import Problem
from tests.controlplane.world import SECONDS, Manifest, World


def evicted(world: World, pod: Manifest) -> bool:
    """Whether the API server agrees to it."""
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
