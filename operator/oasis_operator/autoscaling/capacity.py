"""What one pod carries."""

from __future__ import annotations

from oasis_operator.autoscaling.history import History
from oasis_operator.autoscaling.measured import Fleet, Pod, Ratio, RoleSignals, total
from oasis_operator.autoscaling.policy import Behaviour, ScalingSpec

FULL_MISS_COST = 1.5
"""What a step costs more that fetches all of its pages: the OasisKV paper (arXiv 2608.08097)
measures 833 tokens a second against 2,083."""
PLANNED_HIT = 0.95
"""Hit rate at which a pod carries as many requests as it is configured for: the paper's share of
pages that a step may fetch is 0.05."""
DENSE_COST = 0.69
"""What a dense step costs more than a sparse one: 1,235 tokens a second against 2,083 there."""
LEAST_SHARE = 0.25
"""However slow tokens are, a pod is counted to carry this share of its requests."""
LEAST_BUSY = 0.3
"""Busy pods under which prefill's capacity is not measured: rounding would be most of it."""
SMOOTHING = 0.3
"""Weight of the newest measurement."""


def warm(pods: tuple[Pod, ...], behaviour: Behaviour) -> tuple[Pod, ...]:
    """The pods whose measurements count."""
    return tuple(pod for pod in pods if pod.ready_seconds >= behaviour.warm_up_seconds)


def prefill_capacity(role: RoleSignals, behaviour: Behaviour, before: float | None) -> float | None:
    """Prompt tokens a second of a pod that is always busy; ``None``: never seen at work."""
    pods = warm(role.pods, behaviour)
    tokens, busy = total(pod.tokens for pod in pods), total(pod.busy for pod in pods)
    if tokens <= 0 or busy <= 0 or (before is not None and busy < LEAST_BUSY):
        return before
    seen = tokens / busy
    return seen if before is None else before + SMOOTHING * (seen - before)


def hit_factor(hit: Ratio) -> float:
    """How many times its planned requests a pod carries at this hit rate: a step grows by what it
    has to fetch. 1 where no step was sparse."""
    if hit.value is None:
        return 1.0
    return (1 + FULL_MISS_COST * (1 - PLANNED_HIT)) / (1 + FULL_MISS_COST * (1 - hit.value))


def dense_factor(dense: Ratio) -> float:
    """The same for the share of requests that fell back to dense decoding."""
    return 1 / (1 + DENSE_COST * (dense.value or 0.0))


def planned_requests(fleet: Fleet, spec: ScalingSpec) -> float:
    """Requests that one decode pod is counted to carry before latency has a say."""
    return spec.requests_per_decode_pod * hit_factor(fleet.hit) * dense_factor(fleet.dense)


def decode_share(fleet: Fleet, spec: ScalingSpec, history: History) -> float:
    """Share of the planned requests that a decode pod carries within the SLO.

    A step is ``a + b * requests`` seconds, so ``requests * slo / measured`` is over the true number
    where tokens are too slow, and under it where they are fast enough: following the first down
    and the second up ends at the true number, without knowing ``a`` or ``b``.
    """
    before = 1.0 if history.decode.capacity is None else history.decode.capacity
    pods = warm(fleet.decode.pods, spec.behaviour)
    measured = fleet.decode.latency.value
    if measured is None or measured <= 0 or len(pods) < len(fleet.decode.pods):
        return before
    running = total(pod.running for pod in pods) / max(1, len(pods))
    if running <= 1:
        return before
    seen = running * spec.slo.tpot_seconds / measured / planned_requests(fleet, spec)
    if measured > spec.slo.tpot_seconds:
        return max(LEAST_SHARE, min(before, seen))
    return min(1.0, before + SMOOTHING * max(0.0, seen - before))
