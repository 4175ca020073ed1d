"""One decision about both roles. Pure: the same measurements and history, the same decision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from oasis_operator.autoscaling.allocation import Pair, allocate, coverage
from oasis_operator.autoscaling.capacity import decode_share, prefill_capacity
from oasis_operator.autoscaling.demand import (
    Demand,
    decode_demand,
    prefill_demand,
    requests_of,
    unread_exports,
)
from oasis_operator.autoscaling.history import History, RoleHistory, Sample
from oasis_operator.autoscaling.measured import Fleet, RoleSignals
from oasis_operator.autoscaling.missing import missing
from oasis_operator.autoscaling.policy import Behaviour, Bounds, ScalingSpec
from oasis_operator.autoscaling.reason import Reason
from oasis_operator.autoscaling.recall import LEAST_RECALL, QUALITY_MEMORY_SECONDS, mean_recall
from oasis_operator.autoscaling.trend import TREND_SECONDS
from oasis_operator.autoscaling.window import stabilised, stepped, tolerated

INFEASIBLE = (
    "no number of pods satisfies bounds, ratio and gpuBudget of spec.autoscaling together: "
    "replicas stay as they are; raise the budget or widen the bounds"
)


@dataclass(frozen=True)
class RoleDecision:
    """Pods of one role, and what decided their number."""

    replicas: int
    reason: Reason
    message: str


@dataclass(frozen=True)
class Notice:
    """Something that no number of pods repairs, or that keeps the decision from what is needed."""

    reason: str
    message: str
    alarming: bool = True
    """Whether somebody should look."""


@dataclass(frozen=True)
class Decision:
    """Pods of both roles, to be written together."""

    decode: RoleDecision
    prefill: RoleDecision | None
    history: History
    """For the next decision."""
    held: Notice | None = None
    """Why nothing was decided; the pods stay as they are."""
    notices: tuple[Notice, ...] = ()


def decide(fleet: Fleet, spec: ScalingSpec, history: History, now: float) -> Decision:
    """How many pods each role is to have.

    Args:
        fleet: what is measured. ``fleet.prefill`` and ``spec.prefill`` are there together.
        spec: what to obey.
        history: that of the decision before; a new one at first.
        now: seconds on the clock that ``history`` was made with.

    Returns:
        Never outside bounds, budget and ratio, unless these allow nothing at all: then the pods
        stay as they are.
    """
    gaps = missing(fleet, spec.behaviour)
    if gaps:
        message = f"no data about {', '.join(gap.what for gap in gaps)}"
        return replace(
            _keep(fleet, spec, history, Reason.NO_DATA, message),
            held=_without_data(message, passing=all(gap.passing for gap in gaps)),
        )
    decode_history = replace(
        _given_up(fleet.decode, spec.decode, history.decode, now, spec.behaviour),
        capacity=decode_share(fleet, spec, history),
    )
    demand = decode_demand(fleet, spec, decode_history, now)
    requests = requests_of(fleet.decode) + unread_exports(fleet)
    decode, decode_history = _role(
        fleet.decode, demand, requests, spec.decode, decode_history, now, spec.behaviour
    )
    prefill, prefill_history = None, history.prefill
    if fleet.prefill is not None and spec.prefill is not None:
        prefill_history = _given_up(
            fleet.prefill, spec.prefill, history.prefill, now, spec.behaviour
        )
        capacity = prefill_capacity(fleet.prefill, spec.behaviour, prefill_history.capacity)
        prefill_history = replace(prefill_history, capacity=capacity)
        prefill, prefill_history = _role(
            fleet.prefill,
            prefill_demand(fleet.prefill, fleet, spec, prefill_history, now),
            requests_of(fleet.prefill),
            spec.prefill,
            prefill_history,
            now,
            spec.behaviour,
        )
    low, seen = _low_quality(fleet, history, now)
    after = History(prefill_history, decode_history, low, seen, now)
    return _together(fleet, spec, prefill, decode, after)


def _without_data(message: str, *, passing: bool) -> Notice:
    if passing:
        return Notice(
            "WarmingUp",
            f"{message} yet: replicas stay as they are until pods that just became ready have "
            "been measured for a minute",
            alarming=False,
        )
    return Notice(
        "NoData",
        f"{message}: replicas stay as they are; see whether every engine pod is a target of "
        "Prometheus, without an error, and scraped every 15 s (podMonitor.interval in the chart's "
        "values), for rates are over a minute",
    )


def _keep(
    fleet: Fleet, spec: ScalingSpec, history: History, reason: Reason, message: str
) -> Decision:
    """The pods there are, but never outside what the spec allows."""
    current = _current(fleet)
    pair = allocate(current, current, spec) or current
    return Decision(
        decode=RoleDecision(pair.decode, reason, message),
        prefill=RoleDecision(pair.prefill, reason, message) if fleet.prefill else None,
        history=history,
    )


def _given_up(
    role: RoleSignals, bounds: Bounds, history: RoleHistory, now: float, behaviour: Behaviour
) -> RoleHistory:
    """Remembers that no more pods than these found a place, until it is time to try again."""
    if role.pending_seconds > behaviour.pending_seconds and role.replicas > role.placed:
        return replace(history, given_up_at=now, given_up_above=max(bounds.least, role.placed))
    if history.given_up_at is not None and now - history.given_up_at >= behaviour.retry_seconds:
        return replace(history, given_up_at=None)
    return history


def _role(
    role: RoleSignals,
    demand: Demand,
    requests: float,
    bounds: Bounds,
    history: RoleHistory,
    now: float,
    behaviour: Behaviour,
) -> tuple[RoleDecision, RoleHistory]:
    """What one role wants by itself, and its history with that."""
    needed = tolerated(demand.pods, role.replicas, behaviour.tolerance)
    reason, message, wanted = demand.reason, demand.message, needed
    if needed == role.replicas and demand.pods > role.replicas:
        reason = Reason.WITHIN_TOLERANCE
    for limit, limited in _limits(role, bounds, history, now, behaviour):
        if (count := limited(wanted)) != wanted:
            reason, message = limit, f"{demand.message}; {wanted} pods are wanted"
            wanted = count
    kept = max(behaviour.up_seconds, behaviour.down_seconds, behaviour.step_seconds, TREND_SECONDS)
    sample = Sample(now, role.replicas, needed, demand.load, requests)
    after = history.with_sample(sample, kept)
    return RoleDecision(wanted, reason, message), after


def _limits(
    role: RoleSignals, bounds: Bounds, history: RoleHistory, now: float, behaviour: Behaviour
) -> tuple[tuple[Reason, Callable[[int], int]], ...]:
    """What a wanted number of pods is put through, in order."""
    replicas = role.replicas
    given_up = history.given_up_at is not None
    return (
        (Reason.WINDOW, lambda n: stabilised(n, replicas, history, now, behaviour)),
        (Reason.STEP, lambda n: stepped(n, replicas, history, now, behaviour)),
        (Reason.BOUNDS, lambda n: min(max(n, bounds.least), bounds.most)),
        (Reason.PENDING_TOO_LONG, lambda n: min(n, history.given_up_above) if given_up else n),
    )


def _together(
    fleet: Fleet,
    spec: ScalingSpec,
    prefill: RoleDecision | None,
    decode: RoleDecision,
    history: History,
) -> Decision:
    """Both roles under budget and ratio."""
    wanted, current = Pair(prefill.replicas if prefill else 0, decode.replicas), _current(fleet)
    placeable = _placeable(spec, history)
    pair = allocate(wanted, current, placeable) or allocate(wanted, current, spec)
    if pair is None:
        return replace(
            _keep(fleet, spec, history, Reason.BOUNDS, INFEASIBLE),
            held=Notice("Infeasible", INFEASIBLE),
        )
    unlimited = allocate(wanted, current, replace(placeable, gpu_budget=None))
    short = unlimited is not None and coverage(pair, wanted) < coverage(unlimited, wanted)
    reason = Reason.BUDGET if short else Reason.RATIO
    limit = f"the budget of {spec.gpu_budget} GPUs" if short else "the ratio of the roles"

    def within(role: RoleDecision, replicas: int) -> RoleDecision:
        if replicas == role.replicas:
            return role
        message = f"{role.message}; {role.replicas} pods are wanted, {limit} allows {replicas}"
        return RoleDecision(replicas, reason, message)

    notices = list(_notices(fleet, spec, history))
    if short:
        notices.insert(
            0,
            Notice(
                "BudgetReached",
                f"more pods are wanted than the {spec.gpu_budget} GPUs of "
                "spec.autoscaling.gpuBudget allow: raise it, or expect latencies over the SLO",
            ),
        )
    return Decision(
        decode=within(decode, pair.decode),
        prefill=within(prefill, pair.prefill) if prefill else None,
        history=history,
        notices=tuple(notices),
    )


def _placeable(spec: ScalingSpec, history: History) -> ScalingSpec:
    """The spec without the pods that found no place."""

    def capped(bounds: Bounds, role: RoleHistory) -> Bounds:
        if role.given_up_at is None:
            return bounds
        return replace(bounds, most=min(bounds.most, role.given_up_above))

    return replace(
        spec,
        decode=capped(spec.decode, history.decode),
        prefill=capped(spec.prefill, history.prefill) if spec.prefill else None,
    )


def _notices(fleet: Fleet, spec: ScalingSpec, history: History) -> Iterator[Notice]:
    for name, role in (("prefill", history.prefill), ("decode", history.decode)):
        if role.given_up_at is not None:
            yield Notice(
                "PendingTooLong",
                f"{name} pods did not run within {spec.behaviour.pending_seconds:.0f} s, for want "
                f"of a node, an image or a volume, and were given up: no more than "
                f"{role.given_up_above} until {spec.behaviour.retry_seconds:.0f} s later; add "
                "nodes, lower the maximum or raise spec.autoscaling.pendingSeconds",
            )
    first = fleet.prefill
    if first is not None and first.latency.value is not None and first.queue.value is not None:
        own = first.latency.value - first.queue.value
        if own > spec.slo.ttft_seconds:
            yield Notice(
                "PromptsTakeLonger",
                "prompts take longer than spec.autoscaling.slo.ttftMilliseconds without any "
                "waiting: more pods do not help; raise it, or use more GPUs for each pod",
            )
    since = history.low_quality_since
    if since is not None and history.at - since >= spec.behaviour.quality_seconds:
        yield Notice(
            "LowRecall",
            f"selected blocks have held less than {LEAST_RECALL:.0%} of the attention for "
            f"{spec.behaviour.quality_seconds:.0f} s: raise spec.kv.budgetTokens",
        )


def _low_quality(fleet: Fleet, history: History, now: float) -> tuple[float | None, float]:
    """Since when answers have been poor, and when that was last measured."""
    recall, since, seen = mean_recall(fleet.recall), history.low_quality_since, history.low_seen
    if recall is None:
        return (since if now - seen < QUALITY_MEMORY_SECONDS else None), seen
    if recall >= LEAST_RECALL:
        return None, seen
    return (now if since is None else since), now


def _current(fleet: Fleet) -> Pair:
    return Pair(fleet.prefill.replicas if fleet.prefill else 0, fleet.decode.replicas)
