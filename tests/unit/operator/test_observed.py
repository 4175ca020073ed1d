from __future__ import annotations

import pytest

from oasis_operator.desired.build import desired
from oasis_operator.desired.devices import AllocationMode
from oasis_operator.desired.metadata import Component
from oasis_operator.desired.placement import Placement
from oasis_operator.reconcile.observed import ObjectKey, Observed
from tests.unit.operator.make import (
    IMAGES,
    built,
    by_kubelet,
    deployment,
    progressed,
    serve_target,
    stored,
)


def observed(*, ready: bool, established: bool) -> Observed:
    live = stored(built(deployment()))
    return Observed(
        {
            key: progressed(body, ready=ready, established=established)
            if key.kind == "Deployment"
            else body
            for key, body in live.items()
        }
    )


def test_a_complete_router_is_settled() -> None:
    router = observed(ready=True, established=True).router()
    assert router is not None
    assert router.settled


def test_a_router_with_pods_of_an_earlier_template_is_not_settled() -> None:
    found = observed(ready=True, established=True)
    key = ObjectKey("Deployment", "chat-router")
    found.objects[key]["status"]["replicas"] = 2
    router = found.router()
    assert router is not None
    assert not router.settled


def test_a_status_of_an_earlier_generation_says_nothing() -> None:
    found = observed(ready=True, established=True)
    for key, body in found.objects.items():
        if key.kind == "Deployment":
            body["metadata"]["generation"] = 2
    assert not any(state.available for state in found.revisions().values())


@pytest.mark.parametrize("ready", [True, False])
def test_an_image_that_worked_once_is_kept_also_while_pods_are_down(ready: bool) -> None:
    found = observed(ready=ready, established=True)
    assert found.proven_image(Component.DECODE) == "runtime:1"
    assert found.proven_image(Component.ROUTER) == "router:1"


def test_an_image_that_never_worked_is_not_kept() -> None:
    assert observed(ready=False, established=False).proven_image(Component.DECODE) is None


def test_an_empty_cluster_has_nothing_to_keep() -> None:
    assert Observed().router() is None
    assert Observed().proven_image(Component.DECODE) is None


@pytest.mark.parametrize("mode", ["dra", "kubelet"])
def test_how_serving_pods_got_their_devices_is_read_off_them(mode: AllocationMode) -> None:
    od = deployment(decode={"devices": {"gpu": {}}})
    placed = {component: Placement(mode, "") for component in by_kubelet(od)}
    live = {
        key: progressed(body, ready=False, established=True) if key.kind == "Deployment" else body
        for key, body in stored(desired(od, IMAGES, serve_target, placed)).items()
    }
    # Prefill has no devices, so nothing about it is proven.
    assert Observed(live).proven_allocation() == {Component.DECODE: mode}
    assert Observed().proven_allocation() == {}
