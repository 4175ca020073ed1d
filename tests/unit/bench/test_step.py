"""The metrics of a step that was taken apart."""

from __future__ import annotations

from bench.step import CASES, Breakdown
from bench.turns.stopwatch import Part


def test_the_step_the_wrapping_and_every_part_have_a_metric_of_their_own() -> None:
    parts = {part: float(number) for number, part in enumerate(Part)}
    found = Breakdown(step=100, parts=parts, wrapping=200).metrics(CASES[0], "")
    assert sorted(found.values()) == [*parts.values(), 100, 200]
