from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oasis_operator.desired.build import desired
from oasis_operator.desired.devices import AllocationMode
from oasis_operator.desired.metadata import Component
from oasis_operator.desired.placement import Placement
from oasis_operator.desired.revision_state import RevisionState, RolePods
from oasis_operator.reconcile.observed import Observed
from oasis_operator.reconcile.pods import PodView
from tests.unit.operator.make import (
    IMAGES,
    alone,
    built,
    by_kubelet,
    deployment,
    pod,
    progressed,
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


def test_the_endpoint_tells_which_revision_serves() -> None:
    assert observed(ready=True, established=True).selected() == built(deployment()).rollout.target
    assert Observed().selected() is None


def pods(*views: PodView) -> RevisionState:
    """The state of the one revision, with these pods."""
    found = observed(ready=True, established=True)
    ((_, state),) = replace(found, pods=views).revisions().items()
    return state


def view(component: str = "decode", **changes: Any) -> PodView:
    revision = built(deployment()).rollout.target
    body = pod(component=component, revision=revision, ready=True)
    return replace(PodView.of(body), **changes)


def test_pods_that_end_keep_their_places_and_serve_no_more() -> None:
    state = pods(view(), view(terminating=True), view(ready=False))
    assert state.roles[Component.DECODE] == RolePods(wanted=1, held=3, leaving=1, ready=1)


def test_pods_that_have_ended_are_not_counted() -> None:
    assert pods(view(ready=False, finished=True)).roles[Component.DECODE].held == 0


def test_a_router_that_ends_may_still_have_streams() -> None:
    state = pods(view("router", terminating=True), view("router"))
    assert (state.routers, state.ready_routers) == (2, 1)


def test_pods_without_a_deployment_are_still_of_their_revision() -> None:
    state = Observed(pods=(view(revision="0ld", terminating=True),)).revisions()["0ld"]
    assert state.roles == {Component.DECODE: RolePods(wanted=0, held=1, leaving=1, ready=0)}
    assert not state.established


@pytest.mark.parametrize("ready", [True, False])
def test_an_image_that_worked_once_is_kept_also_while_pods_are_down(ready: bool) -> None:
    found = observed(ready=ready, established=True)
    assert found.proven_image(Component.DECODE) == "runtime:1"
    assert found.proven_image(Component.ROUTER) == "router:1"


def test_an_image_that_never_worked_is_not_kept() -> None:
    assert observed(ready=False, established=False).proven_image(Component.DECODE) is None


def test_an_empty_cluster_has_nothing_to_keep() -> None:
    assert Observed().revisions() == {}
    assert Observed().proven_image(Component.DECODE) is None


@pytest.mark.parametrize("mode", ["dra", "kubelet"])
def test_how_serving_pods_got_their_devices_is_read_off_them(mode: AllocationMode) -> None:
    od = deployment(decode={"devices": {"gpu": {}}})
    placed = {component: Placement(mode, "") for component in by_kubelet(od)}
    objects = desired(od, IMAGES, lambda revision: alone(od, revision), placed)
    live = {
        key: progressed(body, ready=False, established=True) if key.kind == "Deployment" else body
        for key, body in stored(objects).items()
    }
    # Prefill has no devices, so nothing about it is proven.
    assert Observed(live).proven_allocation() == {Component.DECODE: mode}
    assert Observed().proven_allocation() == {}
