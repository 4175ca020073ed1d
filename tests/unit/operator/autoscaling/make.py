"""Fleets for the tests of the autoscaler: busy as said, and otherwise without a fault."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from oasis_operator.autoscaling.decide import Decision, decide
from oasis_operator.autoscaling.history import History
from oasis_operator.autoscaling.measured import Fleet, Latency, Link, Pod, Ratio, RoleSignals
from oasis_operator.autoscaling.policy import Behaviour, Bounds, ScalingSpec, Slo

OLD = 3600.0
CAPACITY = 10_000.0
"""Prompt tokens a second of a busy pod."""
REQUESTS = 14
"""Of one decode pod. It is meant to have half of them, seven."""
STEP = 15.0


def spec(**fields: Any) -> ScalingSpec:
    return ScalingSpec(
        **{
            "decode": Bounds(1, 20),
            "prefill": Bounds(1, 20),
            "slo": Slo(ttft_seconds=2.0, tpot_seconds=0.05),
            "requests_per_decode_pod": REQUESTS,
            "behaviour": Behaviour(),
            **fields,
        }
    )


def prefill(pods: int = 1, load: float = 0.5, **fields: Any) -> RoleSignals:
    """``load`` in pods that are always busy."""
    each = load / max(1, pods)
    pod = Pod(
        ready_seconds=OLD,
        running=each,
        waiting=0.0,
        busy=min(1.0, each),
        tokens=min(1.0, each) * CAPACITY,
        links={"network": Link(0.0, 1e10)},
    )
    return RoleSignals(
        **{
            "replicas": pods,
            "pods": (pod,) * pods,
            "placed": pods,
            "pending_seconds": 0.0,
            "queue": Latency(0.0, 1.0 if load else 0.0),
            "latency": Latency(0.5, 1.0 if load else 0.0),
            **fields,
        }
    )


def decode(pods: int = 1, requests: float = 4.0, **fields: Any) -> RoleSignals:
    """``requests`` of all pods together."""
    pod = Pod(
        ready_seconds=OLD,
        running=requests / max(1, pods),
        waiting=0.0,
        busy=1.0 if requests else 0.0,
        tokens=0.0,
        links={"network": Link(0.0, 1e10), "host_fast": Link(0.0, 5e10)},
    )
    return RoleSignals(
        **{
            "replicas": pods,
            "pods": (pod,) * pods,
            "placed": pods,
            "pending_seconds": 0.0,
            "queue": Latency(0.0, 1.0),
            "latency": Latency(0.02, 100.0),
            **fields,
        }
    )


def fleet(**fields: Any) -> Fleet:
    return Fleet(
        **{
            "decode": decode(),
            "prefill": prefill(),
            "hit": Ratio(0.95, 1.0),
            "dense": Ratio(0.0, 1.0),
            "recall": Ratio(97.0, 100.0),
            "slots": Ratio(0.5, 1.0),
            **fields,
        }
    )


def decided(measured: Fleet, obeyed: ScalingSpec | None = None, **fields: Any) -> Decision:
    """The decision of an operator that has been looking for long."""
    return decide(measured, obeyed or spec(), fields.get("history") or watched(measured), OLD)


def watched(measured: Fleet, behaviour: Behaviour | None = None) -> History:
    """History after the same measurements for ten minutes, nothing of it acted upon."""
    history = History()
    lenient = spec(behaviour=behaviour or Behaviour())
    for i in range(41):
        history = decide(measured, lenient, history, OLD - (41 - i) * STEP).history
    return history


def pair(decision: Decision) -> tuple[int, int]:
    assert decision.prefill is not None
    return decision.prefill.replicas, decision.decode.replicas


RATIO_1_TO_2 = Fraction(1, 2)
