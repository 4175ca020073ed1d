from __future__ import annotations

import pytest

from oasis_operator.desired.metadata import Component
from oasis_operator.desired.rollout import Rollout
from oasis_operator.reconcile.conditions import Draft
from oasis_operator.reconcile.rollout_condition import router_with_rollout, with_rollout

READY = Draft("DecodeReady", "True", "AllReady", "all 2 decode pods are ready")
STARTING = Draft("DecodeReady", "False", "Starting", "0 of 2 decode pods are ready")
CREATING = Draft("DecodeReady", "False", "Creating", "the decode Deployment is being created")
BLOCKED = Rollout("new", "old", None, blocked="2 decode pods do not fit: raise it")
HALF = Rollout("new", "old", {Component.DECODE: 1})
NO_PLACE = Rollout("new", "old", None)


def role(draft: Draft, rollout: Rollout, asked: int = 2) -> Draft:
    return with_rollout(draft, Component.DECODE, rollout, asked)


@pytest.mark.parametrize("draft", [READY, STARTING, CREATING])
def test_with_all_pods_made_the_pods_have_the_word(draft: Draft) -> None:
    assert role(draft, Rollout("new", "old", {Component.DECODE: 2})) == draft


def test_ready_pods_are_not_all_while_some_have_no_place() -> None:
    found = role(READY, HALF)
    assert (found.status, found.reason) == ("False", "WaitingForRoom")
    assert "1 of 2" in found.message


def test_trouble_with_the_pods_there_are_is_told_first() -> None:
    assert role(STARTING, HALF) == STARTING


def test_before_there_is_a_place_for_any_pod_it_waits_for_one() -> None:
    assert role(CREATING, NO_PLACE).reason == "WaitingForRoom"


def test_an_update_that_can_never_fit_is_told_with_what_to_raise() -> None:
    found = role(CREATING, BLOCKED)
    assert (found.status, found.reason) == ("False", "NoRoomForUpdate")
    assert "raise it" in found.message
    router = router_with_rollout(READY, BLOCKED, "old")
    assert (router.reason, router.alarming) == ("NoRoomForUpdate", True)


def test_until_the_switch_the_router_is_updating() -> None:
    found = router_with_rollout(READY, HALF, "old")
    assert (found.status, found.reason) == ("False", "Updating")
    assert "old" in found.message


def test_after_the_switch_the_router_pods_have_the_word() -> None:
    assert router_with_rollout(READY, Rollout("new", "new", {}), "new") == READY


def test_a_router_whose_pods_made_room_says_that_nobody_serves() -> None:
    found = router_with_rollout(READY, HALF, None)
    assert (found.status, found.reason) == ("False", "Updating")
    assert found.message.startswith("nobody serves")
