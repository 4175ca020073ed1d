from __future__ import annotations

from oasis_operator.desired.metadata import Component
from oasis_operator.desired.placement import Obstacle, Placement
from oasis_operator.reconcile.conditions import DECODE_READY, NUMA_ALIGNED, Draft
from oasis_operator.reconcile.observed import ObjectKey, Observed
from oasis_operator.reconcile.placement_condition import (
    numa_with_placement,
    with_placement,
    withheld,
)
from tests.unit.operator.make import built, by_kubelet, deployment, stored

OBSTACLE = Obstacle("DevicesCrossNuma", "no node has it")
HELD = Placement("dra", "", OBSTACLE, hold=True)
FREE = Placement("dra", "")


def kinds(*, hold: bool, observed: Observed) -> list[ObjectKey]:
    od = deployment()
    placed = {**by_kubelet(od), Component.DECODE: HELD if hold else FREE}
    return [ObjectKey.of(item) for item in withheld(built(od), placed, observed).objects]


def test_no_pods_of_any_role_are_made_while_one_is_held() -> None:
    names = [key.name for key in kinds(hold=True, observed=Observed()) if key.kind == "Deployment"]
    assert names == []


def test_what_is_there_stays() -> None:
    od = deployment()
    live = Observed(stored(built(od)))
    assert kinds(hold=True, observed=live) == kinds(hold=False, observed=Observed())


def test_what_is_held_says_why() -> None:
    draft = with_placement(Draft(DECODE_READY, "False", "Creating", "being created"), HELD)
    assert (draft.reason, draft.alarming) == ("DevicesCrossNuma", True)
    assert draft.message == "no pods are made: no node has it"


def test_pods_that_run_are_ready_whatever_a_probe_says() -> None:
    ready = Draft(DECODE_READY, "True", "AllReady", "all ready")
    assert with_placement(ready, HELD) == ready


def test_the_schedulers_words_get_the_reason_that_they_lack() -> None:
    pending = Draft(DECODE_READY, "False", "Unschedulable", "cannot allocate all claims", True)
    busy = Placement("dra", "", waiting=Obstacle("DevicesInUse", "in use"))
    draft = with_placement(pending, busy)
    assert (draft.reason, draft.message) == ("DevicesInUse", "cannot allocate all claims; in use")
    assert with_placement(pending, FREE) == pending


def test_what_is_held_for_devices_in_use_says_so() -> None:
    busy = Placement("dra", "", hold=True, waiting=Obstacle("DevicesInUse", "in use"))
    draft = with_placement(Draft(DECODE_READY, "False", "Creating", "being created"), busy)
    assert (draft.reason, draft.message) == ("DevicesInUse", "no pods are made: in use")


def test_alignment_that_was_measured_is_true_and_otherwise_the_obstacle_is_told() -> None:
    placed = {Component.DECODE: Placement("dra", "", OBSTACLE)}
    measured = Draft(NUMA_ALIGNED, "True", "Aligned", "aligned")
    assert numa_with_placement(measured, placed) == measured
    unknown = Draft(NUMA_ALIGNED, "Unknown", "NoData", "no data")
    draft = numa_with_placement(unknown, placed)
    assert (draft.status, draft.reason, draft.message) == (
        "False",
        "DevicesCrossNuma",
        "no node has it",
    )
    assert numa_with_placement(unknown, {Component.DECODE: FREE}) == unknown
