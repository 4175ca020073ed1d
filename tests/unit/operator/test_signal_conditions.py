from __future__ import annotations

from typing import Any

import pytest

from oasis_operator.reconcile.conditions import Draft
from oasis_operator.reconcile.signal_conditions import hit_rate, serving_mode, signal_conditions
from oasis_operator.signals.prometheus import NOT_CONFIGURED, NoSignals, Signals
from tests.unit.operator.make import deployment

GOOD: dict[str, Any] = {
    "resident_ratio": 0.97,
    "late_ratio": 0.01,
    "mass_recall": 0.95,
    "steps_by_mode": {"sparse": 9.0, "dense": 1.0},
    "numa_by_pod": {"a": 1.0},
    "enabled_by_link": {"host_fast": 1.0, "network": 1.0},
}


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


def test_no_data_is_unknown_and_never_zero() -> None:
    found = conditions(Signals())
    assert {draft.status for draft in found.values()} == {"Unknown"}
    assert hit_rate(Signals()) is None
    assert serving_mode(Signals()) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"steps_by_mode": {"dense": 9.0, "sparse": 1.0}}, "MostlyDense"),
        ({"resident_ratio": 0.5}, "LowHitRate"),
        ({"late_ratio": 0.2}, "LatePages"),
        ({"mass_recall": 0.5}, "LowRecall"),
    ],
)
def test_what_is_wrong_with_sparsity_is_told(changes: dict[str, Any], reason: str) -> None:
    assert one("SparsityHealthy", **changes) == ("False", reason)


def test_dense_steps_are_told_with_their_reasons_most_frequent_first() -> None:
    given = GOOD | {
        "steps_by_mode": {"dense": 1.0},
        "fallbacks_by_reason": {"short": 0.1, "link": 0.4, "never": 0.0},
    }
    message = conditions(Signals(**given))["SparsityHealthy"].message
    assert message.endswith("link, short")


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
