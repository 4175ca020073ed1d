from __future__ import annotations

from typing import Any

import pytest

from oasis_operator.autoscaling.measured import Ratio
from oasis_operator.autoscaling.recall import LEAST_AUDITS
from oasis_operator.reconcile.conditions import Draft
from oasis_operator.reconcile.signal_conditions import (
    NO_FAULT,
    REMEDIES,
    hit_rate,
    serving_mode,
    signal_conditions,
)
from oasis_operator.signals.prometheus import NOT_CONFIGURED, NoSignals, Signals
from tests.unit.core.reasons import fallback_reasons
from tests.unit.operator.make import deployment

GOOD: dict[str, Any] = {
    "resident_ratio": 0.97,
    "late_ratio": 0.01,
    "recall": Ratio(19.0, 20.0),
    "steps_by_mode": {"sparse": 9.0, "dense": 1.0},
    "requests": 1.0,
    "numa_by_pod": {"a": 1.0},
    "enabled_by_link": {"host_fast": 1.0, "network": 1.0},
}


DENSE: dict[str, Any] = {"steps_by_mode": {"dense": 9.0, "sparse": 1.0}}


def conditions(given: Signals | NoSignals, **spec: Any) -> dict[str, Draft]:
    return {draft.type: draft for draft in signal_conditions(deployment(**spec), given)}


def one(kind: str, spec: dict[str, Any] | None = None, **changes: Any) -> tuple[str, str]:
    found = conditions(Signals(**(GOOD | changes)), **(spec or {}))[kind]
    return found.status, found.reason


def test_good_numbers_are_healthy() -> None:
    found = conditions(Signals(**GOOD))
    assert {draft.status for draft in found.values()} == {"True"}


@pytest.mark.parametrize("given", [NOT_CONFIGURED, NoSignals("PrometheusUnreachable", "gone")])
def test_no_prometheus_is_unknown_with_its_reason(given: NoSignals) -> None:
    for draft in conditions(given).values():
        assert (draft.status, draft.reason, draft.message) == (
            "Unknown",
            given.reason,
            given.message,
        )


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({}, "of every pod are"),
        (
            {"prefill": None, "engine": {"nodes": 2, "tensorParallelSize": 2}},
            "of the pods that report, 1 of 2 in each engine, are",
        ),
    ],
)
def test_alignment_is_claimed_of_those_pods_that_report_it(spec: dict[str, Any], told: str) -> None:
    found = conditions(Signals(**GOOD), **spec)["NUMAAligned"]
    assert (found.status, found.reason) == ("True", "Aligned")
    assert told in found.message


def test_no_data_is_unknown_and_never_zero() -> None:
    found = conditions(Signals())
    assert {draft.status for draft in found.values()} == {"Unknown"}
    assert hit_rate(Signals()) is None
    assert serving_mode(Signals()) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (DENSE | {"fallbacks_by_reason": {"fast_tier_full": 0.1}}, "MostlyDense"),
        ({"resident_ratio": 0.5}, "LowHitRate"),
        ({"late_ratio": 0.2}, "LatePages"),
        ({"recall": Ratio(4.0, 8.0)}, "LowRecall"),
    ],
)
def test_what_is_wrong_with_sparsity_is_told(changes: dict[str, Any], reason: str) -> None:
    assert one("SparsityHealthy", **changes) == ("False", reason)


@pytest.mark.parametrize("recall", [0.0, 0.5, 1.0])
def test_recall_is_not_judged_by_fewer_than_eight_audits(recall: float) -> None:
    few = LEAST_AUDITS - 1
    assert one("SparsityHealthy", recall=Ratio(recall * few, few)) == ("Unknown", "TooFewAudits")


def test_what_needs_no_audit_is_told_before_there_are_enough() -> None:
    few = Ratio(1.0, 1.0)
    assert one("SparsityHealthy", recall=few, resident_ratio=0.5) == ("False", "LowHitRate")


def test_dense_steps_are_told_with_their_reasons_and_remedies_most_frequent_first() -> None:
    fallbacks = {"low_recall": 0.1, "fast_tier_full": 0.4, "short_context": 0.9, "never": 0.0}
    given = GOOD | DENSE | {"fallbacks_by_reason": fallbacks}
    message = conditions(Signals(**given))["SparsityHealthy"].message
    assert message.endswith(
        "fast_tier_full, low_recall: raise spec.kv.fastSize or lower spec.engine.maxNumSeqs; "
        "raise spec.kv.budgetTokens"
    )


@pytest.mark.parametrize("reason", sorted(NO_FAULT))
def test_dense_steps_that_are_meant_to_be_dense_are_no_fault(reason: str) -> None:
    given = DENSE | {"fallbacks_by_reason": {reason: 1.0}}
    assert one("SparsityHealthy", **given) == ("True", "Healthy")


def test_one_request_that_falls_back_is_no_fault_among_many_short_ones() -> None:
    given = DENSE | {"fallbacks_by_reason": {"short_context": 0.9, "fast_tier_full": 0.01}}
    assert one("SparsityHealthy", **given) == ("True", "Healthy")


def test_short_contexts_alone_leave_nothing_to_judge_by() -> None:
    given: dict[str, Any] = {
        "steps_by_mode": {"dense": 9.0, "sparse": 0.0},
        "fallbacks_by_reason": {"short_context": 1.0},
        "resident_ratio": None,
        "late_ratio": None,
        "recall": Ratio(0.0, 0.0),
    }
    assert one("SparsityHealthy", **given) == ("Unknown", "NoSparseSteps")


def test_fallbacks_of_requests_that_have_not_ended_are_of_all_requests() -> None:
    changes = DENSE | {"fallbacks_by_reason": {"fast_tier_full": 0.1}, "requests": 0.0}
    assert one("SparsityHealthy", **changes) == ("False", "MostlyDense")


def test_every_reason_of_the_engine_is_no_fault_or_has_a_remedy() -> None:
    assert NO_FAULT | REMEDIES.keys() == fallback_reasons() - {"dense"}
    assert not NO_FAULT & REMEDIES.keys()


def test_dense_on_request_is_no_fault() -> None:
    spec = {"kv": {"mode": "dense"}}
    assert one("SparsityHealthy", spec) == ("Unknown", "DenseMode")


def test_unaligned_pods_are_named() -> None:
    found = conditions(Signals(**(GOOD | {"numa_by_pod": {"b": 0.0, "a": 1.0, "c": 0.0}})))
    assert found["NUMAAligned"].status == "False"
    assert "b, c" in found["NUMAAligned"].message


def test_without_a_device_there_is_nothing_to_align_with() -> None:
    assert one("NUMAAligned", numa_by_pod={"a": -1.0}) == ("Unknown", "NoDevice")


def test_alignment_that_was_not_asked_for_is_not_judged() -> None:
    spec = {"topology": {"numa": {"policy": "none"}}}
    assert one("NUMAAligned", spec, numa_by_pod={"a": 0.0}) == ("Unknown", "NotAsked")


def test_a_disabled_link_is_named() -> None:
    given = GOOD | {"enabled_by_link": {"host_fast": 1.0, "network": 0.0}}
    found = conditions(Signals(**given))["TransportHealthy"]
    assert found.reason == "LinkTooSlow"
    assert "network" in found.message


def test_without_prefill_pods_nothing_uses_the_network_link() -> None:
    links = {"enabled_by_link": {"host_fast": 1.0, "network": 0.0}}
    assert one("TransportHealthy", {"prefill": None}, **links) == ("True", "Healthy")


def test_refused_transfers_are_told() -> None:
    assert one("TransportHealthy", refused_transfers=0.2) == ("False", "TransfersRefused")


@pytest.mark.parametrize(("dense", "mode"), [(0.2, "sparse"), (0.8, "dense")])
def test_the_mode_is_that_of_most_steps(dense: float, mode: str) -> None:
    given = Signals(steps_by_mode={"dense": dense, "sparse": 1 - dense})
    assert serving_mode(given) == mode


def test_the_hit_rate_has_two_digits() -> None:
    assert hit_rate(Signals(resident_ratio=0.9666)) == "0.97"


def test_alignment_speaks_of_no_gpu_that_the_spec_does_not_have() -> None:
    for value in (0.0, 1.0):
        found = conditions(Signals(**(GOOD | {"numa_by_pod": {"a": value}})))["NUMAAligned"]
        assert "GPU" not in found.message
