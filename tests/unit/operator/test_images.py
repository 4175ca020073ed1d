"""What a spec does not say any more is as if it had never said it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.desired.build import Images, desired
from oasis_operator.desired.placement import Placement
from oasis_operator.reconcile.images import images
from oasis_operator.reconcile.observed import Observed
from tests.unit.operator.make import (
    IMAGES,
    alone,
    built,
    by_kubelet,
    deployment,
    progressed,
    stored,
)

NEXT = Images("runtime:next", "router:next")
SAID = st.fixed_dictionaries(
    {},
    optional={
        "image": st.sampled_from(["a:1", "runtime:1"]),
        "router": st.sampled_from([{"image": "b:2"}, {"replicas": 2}]),
        "kv": st.just({"budgetTokens": 512}),
    },
)


def serving(od: OasisDeployment) -> Observed:
    """A cluster that an operator with the defaults of ``IMAGES`` has brought to the spec."""
    found = stored(built(od, images(od, Observed(), IMAGES)))
    return Observed(
        {
            key: progressed(body, ready=True, established=True)
            if key.kind == "Deployment"
            else body
            for key, body in found.items()
        }
    )


@given(SAID)
def test_a_spec_that_says_less_gets_what_it_would_get_in_an_empty_cluster(
    before: dict[str, Any],
) -> None:
    less = deployment()
    assert images(less, serving(deployment(**before)), IMAGES) == IMAGES


def test_other_defaults_move_no_pods_but_those_whose_spec_named_an_image() -> None:
    less = deployment()
    assert images(less, serving(less), NEXT) == IMAGES
    named = deployment(image="a:1", router={"image": "b:2"})
    assert images(less, serving(named), NEXT) == NEXT


@pytest.mark.parametrize("mode", ["dra", "kubelet"])
def test_a_mode_that_the_spec_named_does_not_hold_auto(mode: Any) -> None:
    devices: dict[str, Any] = {"gpu": {}, "nic": {}}

    def proven(**topology: Any) -> dict[Any, Any]:
        od = deployment(decode={"devices": devices}, topology={"numa": topology})
        placed = {component: Placement(mode, "") for component in by_kubelet(od)}
        found = stored(desired(od, IMAGES, lambda revision: alone(od, revision), placed))
        live = {
            key: progressed(body, ready=True, established=True)
            if key.kind == "Deployment"
            else body
            for key, body in found.items()
        }
        return Observed(live).proven_allocation()

    assert proven(mode=mode) == {}
    assert proven() == {"decode": mode}
