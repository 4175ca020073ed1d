"""A request that recalls too little is dense for a while, and does not flap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasis_runtime.core.hold import FIRST_TOKENS, SAMPLES, RecallHold
from tests.unit.core.world import SMALL, World

LEAST = 0.5


def after(samples: list[float], least: float = LEAST) -> RecallHold:
    hold = RecallHold()
    for n, recall in enumerate(samples):
        hold.observe(recall, 100 + n, least)
    return hold


@given(st.lists(st.floats(0, 1), max_size=SAMPLES - 1))
def test_a_few_audits_judge_nobody(samples: list[float]) -> None:
    assert not after(samples).holds(0)


@given(st.lists(st.floats(LEAST, 1), max_size=50))
def test_recall_over_the_bound_never_begins_a_hold(samples: list[float]) -> None:
    assert not after(samples).holds(0)


@given(st.lists(st.floats(0, 1), max_size=50))
def test_a_bound_of_nothing_never_begins_a_hold(samples: list[float]) -> None:
    assert not after(samples, least=0).holds(0)


def test_a_hold_ends_and_the_next_one_is_twice_as_long() -> None:
    hold = after([0.1] * SAMPLES)
    begin = 100 + SAMPLES - 1
    assert hold.holds(begin + FIRST_TOKENS - 1)
    assert not hold.holds(begin + FIRST_TOKENS)
    for n in range(SAMPLES):
        assert not hold.holds(1000 + n)
        hold.observe(0.1, 1000 + n, LEAST)
    assert hold.holds(1000 + SAMPLES - 1 + 2 * FIRST_TOKENS - 1)
    assert not hold.holds(1000 + SAMPLES - 1 + 2 * FIRST_TOKENS)


@pytest.fixture
def world() -> World:
    made = World(100, selection=SMALL, host_blocks=100)
    made.prefill(made.admit("r", 600))
    made.decode(made.requests["r"])
    return made


def recall_little(world: World) -> None:
    for n in range(SAMPLES):
        world.engine.audited("r", 0, n % 2, recall=0.2, error=0.9)


def test_a_request_of_low_recall_is_dense_for_the_hold_and_sparse_after_it(world: World) -> None:
    r = world.requests["r"]
    assert world.decode(r).served == {"r": "sparse"}
    recall_little(world)
    dense = 0
    while world.decode(r).served == {"r": "dense"}:
        dense += 1
    assert FIRST_TOKENS - 2 <= dense <= FIRST_TOKENS
    assert world.decode(r).served == {"r": "sparse"}
    assert world.engine.statistics.fallbacks["low_recall"] == 1
    assert world.engine.statistics.fallbacks["no_selection"] <= 1
    world.close()


def test_a_held_request_takes_no_slots_for_sets_that_it_will_not_use(world: World) -> None:
    r = world.requests["r"]
    recall_little(world)
    world.decode(r)
    before = world.engine.statistics.selected
    for _ in range(10):
        world.decode(r)
    assert world.engine.statistics.selected == before
    world.close()


def test_another_request_is_not_held(world: World) -> None:
    other = world.admit("other", 300)
    world.prefill(other)
    world.decode(other)
    recall_little(world)
    assert world.decode(other).served == {"other": "sparse"}
    world.close()
