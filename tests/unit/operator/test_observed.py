from __future__ import annotations

import pytest

from oasis_operator.desired.metadata import Component
from oasis_operator.reconcile.observed import ObjectKey, Observed
from tests.unit.operator.make import built, deployment, progressed, stored


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
