from __future__ import annotations

from datetime import UTC, datetime

from oasis_operator.cluster.events import MESSAGE_LIMIT, event
from oasis_operator.reconcile.conditions import Draft

WHEN = datetime(2026, 1, 1, tzinfo=UTC)
ABOUT = {"name": "chat", "namespace": "team", "uid": "uid-1"}
ALARM = Draft("PrefillReady", "False", "Unschedulable", "no GPU", alarming=True)


def test_it_is_about_the_deployment_and_says_what_the_condition_says() -> None:
    found = event(ABOUT, ALARM, WHEN)
    assert found["involvedObject"]["uid"] == "uid-1"
    assert (found["type"], found["reason"]) == ("Warning", "Unschedulable")
    assert found["message"] == "PrefillReady: no GPU"


def test_telling_the_same_again_has_the_same_name() -> None:
    later = datetime(2026, 2, 2, tzinfo=UTC)
    assert event(ABOUT, ALARM, WHEN)["metadata"] == event(ABOUT, ALARM, later)["metadata"]


def test_a_long_message_fits_the_api() -> None:
    long = Draft("Ready", "False", "Crashed", "x" * 5000, alarming=True)
    assert len(event(ABOUT, long, WHEN)["message"]) == MESSAGE_LIMIT
