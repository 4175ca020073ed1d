"""The online cap f* = eta * B * T / (N * K * kappa)."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oasis_runtime.core.cap import ETA, FLOOR, prefetch_cap

SLOW = (HealthCheck.too_slow,)
"""A machine that is busy with something else is no failure."""

POSITIVE = st.floats(1e-6, 1e15)


def test_the_formula() -> None:
    # 10 GB/s for 10 ms hide 80 MB of 4 requests with 100 MB each.
    assert prefetch_cap(10e9, 10e-3, 4, 100_000_000) == pytest.approx(ETA * 0.25)


@pytest.mark.parametrize(
    ("rate", "seconds", "requests", "size"),
    [(0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 0, 1), (1, 1, 1, 0)],
)
def test_nothing_measured_yet_leaves_the_cap_open(
    rate: float, seconds: float, requests: int, size: int
) -> None:
    assert prefetch_cap(rate, seconds, requests, size) == 1.0


@given(POSITIVE, POSITIVE, st.integers(1, 4096), st.integers(1, 1 << 45))
@settings(deadline=None, suppress_health_check=SLOW)
def test_the_cap_is_a_share_that_never_reaches_zero(
    rate: float, seconds: float, requests: int, size: int
) -> None:
    assert FLOOR <= prefetch_cap(rate, seconds, requests, size) <= 1.0


@given(POSITIVE, POSITIVE, st.integers(1, 4096), st.integers(1, 1 << 45), st.floats(1, 100))
@settings(deadline=None, suppress_health_check=SLOW)
def test_a_faster_link_never_lowers_it_and_more_requests_never_raise_it(
    rate: float, seconds: float, requests: int, size: int, factor: float
) -> None:
    cap = prefetch_cap(rate, seconds, requests, size)
    assert prefetch_cap(rate * factor, seconds, requests, size) >= cap
    assert prefetch_cap(rate, seconds * factor, requests, size) >= cap
    assert prefetch_cap(rate, seconds, requests + 1, size) <= cap
