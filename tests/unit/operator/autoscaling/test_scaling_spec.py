"""``spec.autoscaling`` as a decision obeys it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.autoscaling.policy import Bounds, ScalingSpec, Slo
from oasis_operator.desired.metadata import Component
from oasis_operator.reconcile.scaling_spec import (
    replicas_of,
    scaling_spec,
    with_replicas,
    within_bounds,
)
from tests.unit.operator.make import built, deployment

ROLES = {"prefill": {"maxReplicas": 4}, "decode": {"minReplicas": 2, "maxReplicas": 8}}


def od(**scaling: Any) -> OasisDeployment:
    return deployment(
        autoscaling={**ROLES, **scaling},
        decode={"devices": {"gpu": {"count": 2}}},
        engine={"maxNumSeqs": 24, "tensorParallelSize": 2},
    )


def obeyed(**scaling: Any) -> ScalingSpec:
    given = od(**scaling)
    assert given.spec.autoscaling is not None
    return scaling_spec(given, given.spec.autoscaling)


def test_bounds_are_those_of_the_roles_and_pods_take_their_gpus() -> None:
    found = obeyed(gpuBudget=12)
    assert found.prefill == Bounds(1, 4, 1)
    assert found.decode == Bounds(2, 8, 2)
    assert found.gpu_budget == 12
    assert found.requests_per_decode_pod == 24


def test_latencies_are_in_seconds() -> None:
    assert obeyed(slo={"ttftMilliseconds": 1500, "tpotMilliseconds": 25}).slo == Slo(1.5, 0.025)


def test_ratios_are_prefill_pods_to_decode_pods() -> None:
    found = obeyed(ratio={"min": "1:4", "max": "2:1"})
    assert (found.least_ratio, found.most_ratio) == (Fraction(1, 4), Fraction(2))
    assert (obeyed().least_ratio, obeyed().most_ratio) == (Fraction(0), None)


def test_times_are_as_written() -> None:
    found = obeyed(scaleDownSeconds=60, warmUpSeconds=5, pendingSeconds=90).behaviour
    assert (found.down_seconds, found.warm_up_seconds, found.pending_seconds) == (60, 5, 90)


def test_decided_replicas_are_as_if_they_were_written() -> None:
    decided = with_replicas(od(), {Component.PREFILL: 3, Component.DECODE: 5})
    assert replicas_of(decided) == {Component.PREFILL: 3, Component.DECODE: 5}
    assert built(decided).rollout.target == built(od()).rollout.target


def test_a_role_that_came_since_the_decision_has_the_replicas_that_were_written() -> None:
    found = with_replicas(od(), {Component.DECODE: 5})
    assert replicas_of(found) == {Component.PREFILL: 1, Component.DECODE: 5}


def test_a_role_that_went_since_the_decision_stays_gone() -> None:
    alone = deployment(prefill=None, autoscaling={"decode": {"maxReplicas": 8}})
    found = with_replicas(alone, {Component.PREFILL: 3, Component.DECODE: 5})
    assert replicas_of(found) == {Component.DECODE: 5}


def test_replicas_of_another_time_come_into_the_bounds() -> None:
    found = within_bounds({Component.PREFILL: 9, Component.DECODE: 1}, obeyed())
    assert found == {Component.PREFILL: 4, Component.DECODE: 2}
