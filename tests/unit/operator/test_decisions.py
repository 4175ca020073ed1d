from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasis_operator.api.status import Condition, RoleStatus, Status
from oasis_operator.reconcile.decisions import Decision, decisions

WHEN = "2026-01-01T00:00:00Z"


def condition(kind: str, status: Any, reason: str = "Because") -> Condition:
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message="so it is",
        last_transition_time=WHEN,
        observed_generation=1,
    )


def status(**fields: Any) -> Status:
    return Status(revision="aaaa", serving_revision="aaaa", mode="sparse").model_copy(update=fields)


def role(desired: int) -> RoleStatus:
    return RoleStatus(replicas=1, ready_replicas=1, desired_replicas=desired)


def told(before: Status, after: Status, *alarmed: str) -> list[tuple[str, bool]]:
    return [(item.reason, item.warning) for item in decisions(before, after, alarmed)]


def test_a_new_revision_is_told_with_what_serves_meanwhile() -> None:
    assert decisions(status(), status(revision="bbbb"), ()) == [
        Decision(
            "RevisionStarted",
            "the spec is revision bbbb now: requests go to aaaa until its pods are ready",
        )
    ]


def test_a_new_revision_that_takes_the_pods_of_the_old_is_told_as_a_gap() -> None:
    gap = status(revision="bbbb", serving_revision=None)
    (started,) = decisions(status(), gap, ())
    assert (
        started.message == "the spec is revision bbbb now: nobody serves until its pods are ready"
    )
    (serves,) = decisions(gap, status(revision="bbbb", serving_revision="bbbb"), ())
    assert serves == Decision("RevisionServes", "requests go to revision bbbb now")


def test_the_switch_of_the_router_is_told() -> None:
    assert decisions(
        status(revision="bbbb"), status(revision="bbbb", serving_revision="bbbb"), ()
    ) == [Decision("RevisionServes", "requests go to revision bbbb instead of aaaa")]


def test_a_first_status_is_no_decision() -> None:
    assert told(Status(), status(decode=role(1))) == []


def test_scaling_is_told_by_component() -> None:
    found = decisions(status(decode=role(1)), status(decode=role(3)), ())
    assert found == [Decision("Scaled", "decode: 3 pods instead of 1")]


def test_a_status_of_an_older_operator_is_no_scaling() -> None:
    old = RoleStatus(replicas=1, ready_replicas=1)
    assert told(status(decode=old), status(decode=role(3))) == []


def test_another_mode_is_told() -> None:
    assert told(status(), status(mode="dense")) == [("ModeChanged", False)]


@pytest.mark.parametrize(
    ("kind", "old", "new", "expected"),
    [
        ("Ready", None, "True", [("Because", False)]),
        ("Ready", "False", "True", [("Because", False)]),
        ("Ready", "True", "False", [("Because", True)]),
        ("Ready", None, "False", []),
        ("SparsityHealthy", "Unknown", "True", []),
        ("SparsityHealthy", "Unknown", "False", [("Because", True)]),
        ("SparsityHealthy", "True", "False", [("Because", True)]),
        ("SparsityHealthy", "False", "True", [("Because", False)]),
        ("SparsityHealthy", "True", "Unknown", []),
        ("DecodeReady", "True", "False", []),
    ],
)
def test_a_condition_is_told_when_it_is_lost_or_recovered(
    kind: str, old: str | None, new: str, expected: list[tuple[str, bool]]
) -> None:
    before = status(conditions=[condition(kind, old)] if old else None)
    assert told(before, status(conditions=[condition(kind, new)])) == expected


def test_pods_of_another_spec_that_are_not_ready_yet_are_no_news() -> None:
    before = status(conditions=[condition("Ready", "True")], observed_generation=1)
    after = status(conditions=[condition("Ready", "False")], observed_generation=2)
    assert told(before, after) == []


def test_what_an_alarm_tells_is_not_told_twice() -> None:
    before = status(conditions=[condition("Ready", "True")])
    after = status(conditions=[condition("Ready", "False")])
    assert told(before, after, "Ready") == []


ANY = st.builds(
    status,
    revision=st.sampled_from([None, "aaaa", "bbbb"]),
    serving_revision=st.sampled_from([None, "aaaa", "bbbb"]),
    mode=st.sampled_from([None, "sparse", "dense"]),
    decode=st.one_of(st.none(), st.builds(role, st.integers(0, 3))),
    conditions=st.lists(
        st.builds(
            condition,
            st.sampled_from(["Ready", "DecodeReady", "SparsityHealthy", "TransportHealthy"]),
            st.sampled_from(["True", "False", "Unknown"]),
        ),
        unique_by=lambda item: item.type,
    ),
)


@given(ANY)
def test_where_nothing_changed_there_is_nothing_to_tell(found: Status) -> None:
    assert decisions(found, found, ()) == []


@given(ANY, ANY)
def test_nothing_is_told_twice(before: Status, after: Status) -> None:
    found = decisions(before, after, ())
    assert len(found) == len(set(found))
