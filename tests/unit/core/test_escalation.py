"""Heads that recall little select more, where there is room, until they recall much."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oasis_runtime.core.escalation import FACTOR, HIGH, LOW, Escalation
from tests.unit.core.world import SMALL, World

ESCALATING = SMALL.model_copy(update={"escalate": True})
BUDGET = 4
"""Blocks that a head of :data:`SMALL` selects."""
BETWEEN = st.floats(LOW, HIGH)
SAMPLES = st.lists(st.floats(0, 1), min_size=1, max_size=30)


def escalated(samples: list[float]) -> bool:
    found = Escalation(1, 1)
    for recall in samples:
        found.observe(0, 0, recall)
    return bool(found.boost()[0, 0] == FACTOR)


@given(SAMPLES)
def test_a_head_is_escalated_after_a_low_mean_and_not_after_a_high_one(
    samples: list[float],
) -> None:
    assert escalated([*samples, *[LOW - 0.1] * 30])
    assert not escalated([*samples, *[1.0] * 30])


@given(st.booleans(), st.lists(BETWEEN, max_size=30))
def test_samples_between_the_bounds_change_nothing(low: bool, then: list[float]) -> None:
    settled = [LOW - 0.01 if low else HIGH + 0.01]
    assert escalated([*settled, *then]) is low


@given(st.lists(BETWEEN, min_size=1, max_size=30))
def test_a_head_that_never_was_low_is_never_escalated(samples: list[float]) -> None:
    assert not escalated(samples)


def test_only_the_head_that_was_observed_is_escalated() -> None:
    found = Escalation(3, 2)
    found.observe(1, 0, 0.1)
    assert found.boost().tolist() == [[1, 1], [FACTOR, 1], [1, 1]]
    assert (found.count, found.most) == (1, 1)


def counts(world: World) -> list[list[int]]:
    selection = world.engine.requests.selection_of("r")
    assert selection is not None
    found: list[list[int]] = selection.count.tolist()
    return found


def decoding(slots: int, selection: object = ESCALATING) -> World:
    world = World(slots, selection=selection)  # type: ignore[arg-type]
    r = world.admit("r", 600)
    world.prefill(r)
    world.decode(r)
    return world


def test_a_head_of_low_recall_selects_twice_the_budget_from_the_next_step_on() -> None:
    world = decoding(slots=200)
    r = world.requests["r"]
    assert counts(world) == [[BUDGET, BUDGET], [BUDGET, BUDGET]]
    world.engine.audited("r", 1, 0, recall=0.3, error=0.5)
    world.decode(r)
    assert counts(world) == [[BUDGET, BUDGET], [FACTOR * BUDGET, BUDGET]]
    world.engine.check()
    attended = world.decode(r).attended["r", 1, 0]
    assert len(attended) > len(world.decode(r).attended["r", 0, 0])
    world.close()


def test_nobody_selects_more_where_the_fast_tier_has_no_room_for_it() -> None:
    world = decoding(slots=2 * 8 + BUDGET - 1)
    world.engine.audited("r", 1, 0, recall=0.3, error=0.5)
    world.decode(world.requests["r"])
    assert counts(world) == [[BUDGET, BUDGET], [BUDGET, BUDGET]]
    assert world.engine.escalation.count == 1
    world.close()


def test_an_engine_that_does_not_escalate_keeps_to_the_budget() -> None:
    world = decoding(slots=200, selection=SMALL)
    world.engine.audited("r", 1, 0, recall=0.3, error=0.5)
    world.decode(world.requests["r"])
    assert counts(world) == [[BUDGET, BUDGET], [BUDGET, BUDGET]]
    assert world.engine.statistics.recalls == [0.3]
    assert world.engine.statistics.errors == [0.5]
    world.close()


def test_a_head_that_recalls_much_again_goes_back_to_the_budget() -> None:
    world = decoding(slots=200)
    world.engine.audited("r", 0, 1, recall=0.3, error=0.5)
    for _ in range(20):
        world.engine.audited("r", 0, 1, recall=1.0, error=0.0)
    world.decode(world.requests["r"])
    assert np.array(counts(world)).max() == BUDGET
    world.close()
