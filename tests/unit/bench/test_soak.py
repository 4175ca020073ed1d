"""What a soak calls growth, and what a warm-up."""

from __future__ import annotations

from bench.soak import Growth


def test_growth_that_ends_is_a_warm_up() -> None:
    growth = Growth([100, 150, 180, 195, 200, 200, 200, 200])
    assert (growth.warm_up, growth.after, growth.slope) == (100, 0, 0)


def test_growth_that_goes_on_is_growth() -> None:
    growth = Growth([100, 110, 120, 130, 140, 150, 160, 170])
    assert (growth.after, growth.slope) == (20, 10)


def test_one_high_rest_is_no_growth() -> None:
    assert Growth([*[100] * 9, 400, 100, 100]).after == 0
