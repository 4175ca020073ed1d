"""Which drafts are made for a request, by how many of the last ones were right."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasis_runtime.contract import PredictionConfig
from oasis_runtime.core.drafting import (
    DRAFT_METHODS,
    FIRST_TOKENS,
    SAMPLES,
    DraftMethod,
    DraftTrial,
    draft_methods,
)
from tests.unit.core.world import World

NGRAM: Sequence[DraftMethod] = ("ngram",)
STEPS = st.lists(st.tuples(st.integers(1, 16), st.floats(0, 1)), min_size=1, max_size=60)


def wrong(trial: DraftTrial, length: int, methods: Sequence[DraftMethod] = NGRAM) -> int:
    """Have wrong drafts until a method is dropped; returns how many it took."""
    count = 1
    while trial.observe(1, 0, length, methods) is None:
        count += 1
    return count


@given(STEPS)
def test_a_request_whose_drafts_pay_is_never_stopped(steps: list[tuple[int, float]]) -> None:
    trial = DraftTrial()
    for drafted, share in steps:
        right = min(drafted, 1 + int(share * drafted))
        assert trial.observe(drafted, right, 0, NGRAM) is None
    assert trial.method(1, NGRAM) == "ngram"


def test_a_few_wrong_drafts_stop_nothing() -> None:
    assert wrong(DraftTrial(), 0) == SAMPLES


def test_good_drafts_before_make_it_take_longer() -> None:
    trial = DraftTrial()
    trial.observe(200, 200, 0, NGRAM)
    assert wrong(trial, 0) > SAMPLES


def test_a_step_without_drafts_says_nothing() -> None:
    trial = DraftTrial()
    assert all(trial.observe(0, 0, n, NGRAM) is None for n in range(100))
    assert trial == DraftTrial()


def test_drafting_pauses_and_each_pause_is_twice_as_long_as_the_one_before() -> None:
    trial, length = DraftTrial(), 1000
    for pause in (FIRST_TOKENS, 2 * FIRST_TOKENS, 4 * FIRST_TOKENS):
        assert trial.method(length, NGRAM) == "ngram"
        wrong(trial, length)
        assert trial.method(length + pause - 1, NGRAM) is None
        length += pause


def test_what_comes_after_a_pause_is_judged_anew() -> None:
    trial = DraftTrial()
    wrong(trial, 0)
    assert wrong(trial, FIRST_TOKENS) == SAMPLES


def test_heads_give_way_to_the_look_up_for_good_and_that_one_pauses() -> None:
    trial = DraftTrial()
    assert trial.method(0, DRAFT_METHODS) == "draft"
    wrong(trial, 0, DRAFT_METHODS)
    assert trial.method(0, DRAFT_METHODS) == "ngram"
    wrong(trial, 0, DRAFT_METHODS)
    assert trial.method(FIRST_TOKENS - 1, DRAFT_METHODS) is None
    assert trial.method(FIRST_TOKENS, DRAFT_METHODS) == "ngram"


@pytest.mark.parametrize(
    ("heads", "methods"),
    [({}, ["ngram"]), ({"draft_heads": "eagle", "draft_model": "/h"}, ["draft", "ngram"])],
)
def test_heads_are_tried_first_where_there_are_any(
    heads: dict[str, str], methods: list[DraftMethod]
) -> None:
    prediction = PredictionConfig.model_validate({"method": "auto", **heads})
    assert list(draft_methods(prediction)) == methods


def test_the_engine_says_what_drafts_for_each_request_and_counts_what_it_dropped() -> None:
    world = World(100, draft_methods=DRAFT_METHODS)
    for name in ("a", "b"):
        world.prefill(world.admit(name, 40))
    for _ in range(SAMPLES):
        world.engine.verified("a", 1, 0)
        world.engine.verified("b", 1, 1)
    assert world.engine.draft_method("a") == "ngram"
    assert world.engine.draft_method("b") == "draft"
    assert dict(world.engine.statistics.drafts_dropped) == {"draft": 1}
    world.release(world.requests["a"])
    assert world.engine.draft_method("a") is None
    world.engine.verified("a", 1, 0)
    world.close()
