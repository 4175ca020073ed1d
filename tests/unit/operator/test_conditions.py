from __future__ import annotations

import pytest

from oasis_operator.reconcile.conditions import Draft, newly_alarming, with_transitions

OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-02T00:00:00Z"
BEFORE = with_transitions([Draft("Ready", "False", "Starting", "a")], [], OLD, 1)


@pytest.mark.parametrize(("status", "time"), [("False", OLD), ("True", NEW)])
def test_the_transition_time_moves_with_the_status_only(status: str, time: str) -> None:
    draft = Draft("Ready", status, "Other", "b")  # type: ignore[arg-type]
    (after,) = with_transitions([draft], BEFORE, NEW, 2)
    assert after.last_transition_time == time
    assert (after.reason, after.message, after.observed_generation) == ("Other", "b", 2)


def test_an_alarm_is_told_once() -> None:
    alarm = Draft("PrefillReady", "False", "Unschedulable", "no GPU", alarming=True)
    assert newly_alarming([alarm], BEFORE) == [alarm]
    assert newly_alarming([alarm], with_transitions([alarm], BEFORE, NEW, 2)) == []


def test_what_changed_about_it_is_told_again() -> None:
    alarm = Draft("PrefillReady", "False", "Unschedulable", "no GPU", alarming=True)
    told = with_transitions([alarm], [], OLD, 1)
    other = Draft("PrefillReady", "False", "Unschedulable", "no memory", alarming=True)
    assert newly_alarming([other], told) == [other]


def test_what_is_no_alarm_is_never_told() -> None:
    assert newly_alarming([Draft("Ready", "False", "Starting", "b")], []) == []
