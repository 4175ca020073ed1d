"""What the user asks for, and the constants of how it is pursued."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Bounds:
    """Of one role. ``gpus`` is what one of its pods takes from the budget."""

    least: int
    most: int
    gpus: int = 1


@dataclass(frozen=True)
class Slo:
    """Latencies to keep, in seconds, at the quantile that the signals are taken at."""

    ttft_seconds: float
    tpot_seconds: float


@dataclass(frozen=True)
class Behaviour:
    """How fast to follow, as in a HorizontalPodAutoscaler."""

    tolerance: float = 0.1
    """Relative difference between need and pods that nothing is done about."""
    up_seconds: float = 0.0
    """Pods are added only if they were needed all this time."""
    down_seconds: float = 300.0
    """Pods are taken away only if none of them was needed in all this time."""
    step_seconds: float = 60.0
    """In one such period a role at most doubles, or grows by ``step_pods``, and loses at most
    a quarter, or one."""
    step_pods: int = 4
    warm_up_seconds: float = 30.0
    """A pod younger than this has capacity to come, but its measurements say nothing yet."""
    pending_seconds: float = 600.0
    """Pods that do not run after this long are given up; what one loads then takes its time."""
    retry_seconds: float = 900.0
    """How long no more pods are asked for after that."""
    quality_seconds: float = 600.0
    """How long recall may be low before it is told."""


@dataclass(frozen=True)
class ScalingSpec:
    """Everything that a decision obeys."""

    decode: Bounds
    prefill: Bounds | None
    slo: Slo
    requests_per_decode_pod: int
    """Requests that one decode pod runs at once (``engine.maxNumSeqs``)."""
    gpu_budget: int | None = None
    """Most GPUs of both roles together."""
    least_ratio: Fraction = Fraction(0)
    """Prefill pods per decode pod, at least."""
    most_ratio: Fraction | None = None
    """Prefill pods per decode pod, at most."""
    behaviour: Behaviour = Behaviour()
