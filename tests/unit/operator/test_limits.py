from __future__ import annotations

from typing import Any

import pytest

from oasis_operator.desired.limits import Limits, limits_of
from oasis_operator.desired.metadata import Component
from oasis_operator.desired.revision_state import goal_of
from tests.unit.operator.make import deployment

SCALED = {
    "prefill": {"maxReplicas": 2},
    "decode": {"maxReplicas": 4},
    "gpuBudget": 12,
}


def limits(**spec: Any) -> Limits:
    return limits_of(deployment(**spec))


def test_by_default_there_is_room_for_a_second_revision_and_none_of_the_first_may_lack() -> None:
    found = limits()
    assert (found.ceiling(3), found.floor(3)) == (6, 3)


def test_recreate_has_room_for_one_revision_and_none_must_serve() -> None:
    found = limits(updates={"strategy": "Recreate", "maxSurge": 3})
    assert (found.ceiling(3), found.floor(3)) == (3, 0)


@pytest.mark.parametrize(
    ("surge", "unavailable", "replicas", "bounds"),
    [(1, 0, 4, (5, 4)), ("25%", "25%", 5, (7, 4)), ("0%", "50%", 3, (3, 2)), (0, 9, 4, (4, 0))],
)
def test_shares_are_of_the_replicas_and_rounded_for_the_side_of_serving(
    surge: int | str, unavailable: int | str, replicas: int, bounds: tuple[int, int]
) -> None:
    found = limits(updates={"maxSurge": surge, "maxUnavailable": unavailable})
    assert (found.ceiling(replicas), found.floor(replicas)) == bounds


def test_the_budget_of_the_autoscaler_holds_during_an_update_too() -> None:
    found = limits(autoscaling=SCALED, decode={"devices": {"gpu": {"count": 2}}})
    assert found.fits({Component.PREFILL: 4, Component.DECODE: 4})
    assert not found.fits({Component.PREFILL: 5, Component.DECODE: 4})
    assert limits().fits({Component.DECODE: 10_000})


def test_scaled_replicas_are_followed_and_written_ones_are_not() -> None:
    assert goal_of(deployment(autoscaling=SCALED), "r").elastic
    assert not goal_of(deployment(), "r").elastic
