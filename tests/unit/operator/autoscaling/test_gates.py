"""What keeps a decision from following the load: data, time, room and quality."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from oasis_operator.autoscaling.decide import decide
from oasis_operator.autoscaling.history import History
from oasis_operator.autoscaling.measured import Fleet, Latency, Link, Ratio, RoleSignals
from oasis_operator.autoscaling.policy import Behaviour, Bounds
from oasis_operator.autoscaling.reason import Reason
from tests.unit.operator.autoscaling.make import (
    OLD,
    RATIO_1_TO_2,
    STEP,
    decided,
    decode,
    fleet,
    pair,
    prefill,
    spec,
    watched,
)

BUSY = fleet(prefill=prefill(3, load=6.0), decode=decode(3, requests=60))


def without(role: str, **fields: Any) -> Fleet:
    """The busy fleet with one pod of a role changed."""
    signals = getattr(BUSY, role)
    pods = (replace(signals.pods[0], **fields), *signals.pods[1:])
    return replace(BUSY, **{role: replace(signals, pods=pods)})


GAPS = {
    "requests": without("decode", running=None),
    "waiting requests": without("decode", waiting=math.nan),
    "prefill's work": without("prefill", tokens=None),
    "prefill's time": without("prefill", busy=math.nan),
    "bytes of a link": without("decode", links={"network": Link(None, 1e10)}),
    "bandwidth of a link": without("prefill", links={"network": Link(1.0, math.nan)}),
    "time to first token": replace(
        BUSY, prefill=prefill(3, load=6.0, latency=Latency(math.nan, 1.0))
    ),
    "number of tokens": replace(BUSY, decode=decode(3, requests=60, latency=Latency(0.1, None))),
    "queue": replace(BUSY, decode=decode(3, requests=60, queue=Latency(None, 1.0))),
    "hit rate": replace(BUSY, hit=Ratio(None, 1.0)),
    "dense requests": replace(BUSY, dense=Ratio(0.0, None)),
    "recall": replace(BUSY, recall=Ratio(math.nan, 1.0)),
    "slots": replace(BUSY, slots=Ratio(None, None)),
    "exports": replace(BUSY, exports=None),
    "age of exports": replace(BUSY, export_seconds=math.nan),
    "every pod": replace(BUSY, decode=replace(BUSY.decode, pods=())),
}


@pytest.mark.parametrize("gap", GAPS)
def test_a_missing_number_holds_both_roles_and_says_which(gap: str) -> None:
    found = decide(GAPS[gap], spec(), watched(BUSY), OLD)
    assert pair(found) == (3, 3)
    assert found.decode.reason is Reason.NO_DATA
    assert found.held is not None
    assert (found.held.reason, found.held.alarming) == ("NoData", True)
    assert "podMonitor.interval" in found.held.message


FRESH = 100.0
"""Seconds after which a pod is warm and may still be without a rate."""


def aged(measured: Fleet, seconds: float) -> Fleet:
    """The fleet with pods that have been ready for so long."""

    def role(signals: RoleSignals) -> RoleSignals:
        pods = tuple(replace(pod, ready_seconds=seconds) for pod in signals.pods)
        return replace(signals, pods=pods)

    assert measured.prefill is not None
    return replace(measured, prefill=role(measured.prefill), decode=role(measured.decode))


@pytest.mark.parametrize("gap", sorted(GAPS.keys() - {"every pod"}))
def test_what_pods_that_just_became_ready_do_not_show_yet_alarms_nobody(gap: str) -> None:
    found = decide(aged(GAPS[gap], FRESH), spec(), watched(BUSY), OLD)
    assert pair(found) == (3, 3)
    assert found.held is not None
    assert (found.held.reason, found.held.alarming) == ("WarmingUp", False)


def test_a_start_without_a_warm_pod_alarms_nobody() -> None:
    found = decide(aged(BUSY, 5.0), spec(), History(), OLD)
    assert pair(found) == (3, 3)
    assert found.held is not None
    assert found.held.reason == "WarmingUp"


def test_one_fresh_pod_excuses_only_what_it_misses_itself() -> None:
    one = without("decode", running=None, ready_seconds=FRESH)
    found = decide(one, spec(), watched(BUSY), OLD).held
    assert found is not None
    assert found.reason == "WarmingUp"
    found = decide(replace(one, hit=Ratio(None, None)), spec(), watched(BUSY), OLD).held
    assert found is not None
    assert found.reason == "NoData"


def test_the_same_fleet_with_all_numbers_grows() -> None:
    prefills, decodes = pair(decide(BUSY, spec(), watched(BUSY), OLD))
    assert prefills > 3
    assert decodes > 3


def test_a_ratio_of_nothing_is_not_missing() -> None:
    nothing = Ratio(math.nan, 0.0)
    idle = replace(
        fleet(decode=decode(requests=0, latency=Latency(math.nan, 0.0))),
        hit=nothing,
        dense=nothing,
        recall=nothing,
    )
    assert decided(idle).held is None


def test_missing_data_still_keeps_the_budget() -> None:
    blind = replace(BUSY, exports=None)
    assert sum(pair(decided(blind, spec(gpu_budget=4)))) <= 4


def test_a_young_pods_numbers_may_be_missing() -> None:
    young = without("decode", ready_seconds=5.0, running=None, links={})
    assert decide(young, spec(), watched(BUSY), OLD).held is None


def test_waiting_says_nothing_while_pods_that_were_asked_for_are_not_warm() -> None:
    role = prefill(2, load=1.0, queue=Latency(30.0, 1.0))
    young = replace(role, pods=(role.pods[0], replace(role.pods[1], ready_seconds=5.0)))
    assert decided(fleet(prefill=role)).prefill != decided(fleet(prefill=young)).prefill
    found = decided(fleet(prefill=young)).prefill
    assert found is not None
    assert found.replicas == 2


def test_a_small_excess_is_tolerated() -> None:
    found = decided(fleet(decode=decode(10, requests=74)))
    assert (found.decode.replicas, found.decode.reason) == (10, Reason.WITHIN_TOLERANCE)


def test_a_start_takes_no_pod_away_before_the_window_has_passed() -> None:
    idle = fleet(decode=decode(4, requests=4))
    history, now = History(), 0.0
    while now < 300:
        found = decide(idle, spec(), history, now)
        assert found.decode.replicas == 4
        history, now = found.history, now + STEP
    assert decide(idle, spec(), history, now).decode.replicas == 3


def test_one_moment_of_load_in_the_window_keeps_the_pods() -> None:
    idle = fleet(decode=decode(4, requests=4))
    history = watched(idle)
    history = decide(fleet(decode=decode(4, requests=30)), spec(), history, OLD).history
    found = decide(idle, spec(), history, OLD + 200)
    assert (found.decode.replicas, found.decode.reason) == (4, Reason.WINDOW)
    assert decide(idle, spec(), found.history, OLD + 310).decode.replicas == 3


def test_load_that_has_to_last_before_pods_are_added() -> None:
    patient = spec(behaviour=Behaviour(up_seconds=60.0))
    history = watched(fleet(), patient.behaviour)
    busy = fleet(decode=decode(1, requests=30))
    first = decide(busy, patient, history, OLD)
    assert first.decode.replicas == 1
    later = first
    for i in range(1, 6):
        later = decide(busy, patient, later.history, OLD + i * STEP)
    assert later.decode.replicas >= 4


def test_growth_is_by_steps() -> None:
    found = decided(fleet(decode=decode(2, requests=150)))
    assert (found.decode.replicas, found.decode.reason) == (6, Reason.STEP)
    found = decided(fleet(decode=decode(8, requests=150)))
    assert found.decode.replicas == 16


def test_a_step_is_one_period_and_not_one_decision() -> None:
    first = decided(fleet(decode=decode(2, requests=150)))
    grown = fleet(decode=decode(6, requests=150))
    assert decide(grown, spec(), first.history, OLD + STEP).decode.replicas == 6
    assert decide(grown, spec(), first.history, OLD + 61).decode.replicas == 12


def test_bounds_hold() -> None:
    narrow = spec(decode=Bounds(2, 3), prefill=Bounds(2, 3))
    assert pair(decided(BUSY, narrow)) == (3, 3)
    assert pair(decided(fleet(), narrow)) == (2, 2)


def test_the_budget_goes_where_it_is_short_and_is_told() -> None:
    found = decided(BUSY, spec(gpu_budget=8))
    assert sum(pair(found)) == 8
    assert [notice.reason for notice in found.notices] == ["BudgetReached"]
    assert Reason.BUDGET in {found.decode.reason, found.prefill and found.prefill.reason}


def test_a_role_gives_pods_to_the_other_when_the_budget_is_short() -> None:
    shifted = fleet(prefill=prefill(6, load=4.0), decode=decode(2, requests=48))
    found = decided(shifted, spec(gpu_budget=8))
    assert pair(found) == (4, 4)


def test_the_ratio_raises_the_role_that_is_behind() -> None:
    found = decided(fleet(decode=decode(1, requests=26)), spec(least_ratio=RATIO_1_TO_2))
    assert pair(found) == (2, 4)
    assert found.prefill is not None
    assert found.prefill.reason is Reason.RATIO


def test_pods_that_stay_pending_are_given_up_and_told() -> None:
    role = decode(2, requests=35)
    stuck = fleet(decode=replace(role, replicas=5, pending_seconds=700.0))
    found = decided(stuck)
    assert (found.decode.replicas, found.decode.reason) == (2, Reason.PENDING_TOO_LONG)
    assert [notice.reason for notice in found.notices] == ["PendingTooLong"]


def test_pods_that_were_given_up_are_tried_again_later() -> None:
    role = decode(2, requests=35)
    stuck = fleet(decode=replace(role, replicas=5, pending_seconds=700.0))
    history = decided(stuck).history
    reverted = fleet(decode=role)
    assert decide(reverted, spec(), history, OLD + 800).decode.replicas == 2
    assert decide(reverted, spec(), history, OLD + 900).decode.replicas == 5


def test_what_found_a_place_and_loads_is_kept_where_others_are_given_up() -> None:
    role = decode(2, requests=35)
    stuck = fleet(decode=replace(role, replicas=5, placed=3, pending_seconds=700.0))
    assert decided(stuck).decode.replicas == 3


def test_a_model_that_loads_for_longer_than_a_pod_may_be_pending_is_waited_for() -> None:
    role = decode(2, requests=35)
    loading = fleet(decode=replace(role, replicas=5, placed=5))
    found = decide(loading, spec(behaviour=Behaviour(pending_seconds=30.0)), watched(loading), OLD)
    assert found.decode.replicas == 5
    assert found.notices == ()


def test_pods_that_are_pending_for_a_moment_are_waited_for() -> None:
    role = decode(2, requests=35)
    starting = fleet(decode=replace(role, replicas=5, pending_seconds=60.0))
    assert decided(starting).decode.replicas == 5


def test_recall_that_stays_low_is_told_and_changes_no_pods() -> None:
    poor = fleet(recall=Ratio(70.0, 100.0))
    first = decide(poor, spec(), History(), 0.0)
    assert first.notices == ()
    later = decide(poor, spec(), first.history, 600.0)
    assert [notice.reason for notice in later.notices] == ["LowRecall"]
    assert pair(later) == (1, 1)
    assert decide(fleet(), spec(), later.history, 615.0).notices == ()


def test_recall_of_a_few_audits_is_not_low() -> None:
    poor = fleet(recall=Ratio(0.7, 1.0))
    first = decide(poor, spec(), History(), 0.0)
    assert decide(poor, spec(), first.history, 600.0).notices == ()


def test_recall_that_nobody_can_measure_any_more_is_not_low_for_ever() -> None:
    poor, few = fleet(recall=Ratio(70.0, 100.0)), fleet(recall=Ratio(0.7, 1.0))
    first = decide(poor, spec(), History(), 0.0)
    later = decide(few, spec(), first.history, 1800.0)
    assert [notice.reason for notice in later.notices] == ["LowRecall"]
    assert decide(few, spec(), later.history, 3600.0).notices == ()


def test_a_few_good_audits_do_not_end_that_recall_is_low() -> None:
    poor, few = fleet(recall=Ratio(70.0, 100.0)), fleet(recall=Ratio(1.0, 1.0))
    first = decide(few, spec(), decide(poor, spec(), History(), 0.0).history, 300.0)
    later = decide(poor, spec(), first.history, 600.0)
    assert [notice.reason for notice in later.notices] == ["LowRecall"]


def test_bounds_that_allow_nothing_hold_and_say_so() -> None:
    found = decided(fleet(), spec(gpu_budget=1))
    assert pair(found) == (1, 1)
    assert found.held is not None
    assert found.held.reason == "Infeasible"


def test_a_role_that_does_not_serve_yet_is_not_decided_about() -> None:
    found = decided(fleet(prefill=None), spec())
    assert found.prefill is None
    assert found.decode.replicas == 1


def test_a_role_that_is_going_is_not_decided_about() -> None:
    found = decided(fleet(), spec(prefill=None))
    assert found.prefill is None
    assert found.decode.replicas == 1
