"""Where the load is going."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasis_operator.autoscaling.decide import decide
from oasis_operator.autoscaling.history import History, RoleHistory, Sample
from oasis_operator.autoscaling.trend import LEAD_SECONDS, MOST_RISE, queue_growth, rise
from tests.unit.operator.autoscaling.make import STEP, decode, fleet, spec

NOW = 1000.0


def seen(loads: list[float]) -> RoleHistory:
    """One sample a step, the newest one step ago."""
    return RoleHistory(
        tuple(
            Sample(NOW - (len(loads) - i) * STEP, 1, 1, load, load) for i, load in enumerate(loads)
        )
    )


def test_a_load_that_climbs_is_met_where_it_will_be() -> None:
    climbing = seen([10 + 0.1 * i for i in range(12)])
    assert rise(climbing, NOW, 11.2) == pytest.approx(LEAD_SECONDS * 0.1 / STEP)


def test_a_step_is_not_taken_for_a_climb() -> None:
    assert rise(seen([1.0] * 8 + [10.0] * 4), NOW, 10.0) <= MOST_RISE * 10


def test_a_load_that_falls_is_not_forecast() -> None:
    assert rise(seen([10 - 0.5 * i for i in range(12)]), NOW, 4.0) == 0


def test_a_moment_is_no_trend() -> None:
    assert rise(seen([1.0, 2.0]), NOW, 3.0) == 0


@given(st.floats(0, 100), st.integers(0, 40))
def test_a_constant_load_has_no_trend(load: float, samples: int) -> None:
    history = seen([load] * samples)
    assert rise(history, NOW, load) == pytest.approx(0, abs=1e-6)
    assert queue_growth(history, NOW, load) == pytest.approx(0, abs=1e-6)


def test_a_queue_that_drains_shrinks() -> None:
    assert queue_growth(seen([40.0 - i for i in range(12)]), NOW, 28.0) == pytest.approx(-1 / STEP)


def test_a_climb_adds_pods_before_they_are_short() -> None:
    history = History()
    for i in range(20):
        requests = 40 + 1.2 * i
        found = decide(fleet(decode=decode(8, requests)), spec(), history, i * STEP)
        history = found.history
    assert found.decode.replicas > 8
    assert requests / 8 < 8
