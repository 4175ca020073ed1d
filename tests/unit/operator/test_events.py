from __future__ import annotations

from datetime import UTC, datetime

from oasis_operator.cluster.events import MESSAGE_LIMIT, alarm, decision_event, told_again
from oasis_operator.reconcile.conditions import Draft
from oasis_operator.reconcile.decisions import Decision

WHEN = datetime(2026, 1, 1, tzinfo=UTC)
ABOUT = {
    "name": "chat",
    "namespace": "team",
    "uid": "uid-1",
    "generation": 3,
    "resourceVersion": "7",
}
ALARM = Draft("PrefillReady", "False", "Unschedulable", "no GPU", alarming=True)


def test_it_is_about_the_deployment_and_says_what_the_condition_says() -> None:
    found = alarm(ABOUT, ALARM, WHEN)
    assert found["involvedObject"]["uid"] == "uid-1"
    assert (found["type"], found["reason"]) == ("Warning", "Unschedulable")
    assert found["message"] == "PrefillReady: no GPU"


def test_telling_the_same_again_has_the_same_name() -> None:
    later = datetime(2026, 2, 2, tzinfo=UTC)
    assert alarm(ABOUT, ALARM, WHEN)["metadata"] == alarm(ABOUT, ALARM, later)["metadata"]


def test_a_long_message_fits_the_api() -> None:
    long = Draft("Ready", "False", "Crashed", "x" * 5000, alarming=True)
    assert len(alarm(ABOUT, long, WHEN)["message"]) == MESSAGE_LIMIT


def test_a_decision_is_no_warning_unless_somebody_should_look() -> None:
    scaled = decision_event(ABOUT, Decision("Scaled", "decode: 2 pods instead of 1"), WHEN)
    lost = decision_event(ABOUT, Decision("LowRecall", "too low", warning=True), WHEN)
    assert (scaled["type"], scaled["reason"]) == ("Normal", "Scaled")
    assert lost["type"] == "Warning"


def test_the_same_decision_is_told_once_for_a_generation_of_the_spec() -> None:
    scaled = Decision("Scaled", "decode: 2 pods instead of 1")
    again, later = {**ABOUT}, {**ABOUT, "generation": 4}
    first = decision_event(ABOUT, scaled, WHEN)["metadata"]["name"]
    assert decision_event(again, scaled, WHEN)["metadata"]["name"] == first
    assert decision_event(later, scaled, WHEN)["metadata"]["name"] != first


def test_the_same_told_again_later_is_counted() -> None:
    later = datetime(2026, 2, 2, tzinfo=UTC)
    found = alarm(ABOUT, ALARM, WHEN) | {"count": 4}
    again = told_again(alarm({**ABOUT, "resourceVersion": "9"}, ALARM, later), found)
    assert (again["count"], again["lastTimestamp"]) == (5, "2026-02-02T00:00:00Z")


def test_a_pass_that_is_repeated_counts_nothing_twice() -> None:
    later = datetime(2026, 2, 2, tzinfo=UTC)
    assert told_again(alarm(ABOUT, ALARM, later), alarm(ABOUT, ALARM, WHEN)) == {}
