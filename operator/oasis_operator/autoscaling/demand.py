"""How many pods each thing that can run short asks for. The largest demand counts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from oasis_operator.autoscaling.capacity import planned_requests, warm
from oasis_operator.autoscaling.history import RoleHistory
from oasis_operator.autoscaling.measured import Fleet, RoleSignals, total
from oasis_operator.autoscaling.policy import Behaviour, ScalingSpec
from oasis_operator.autoscaling.reason import Reason
from oasis_operator.autoscaling.trend import queue_growth, rise

BUSY_TARGET = 0.7
"""Share of the time that a prefill pod is meant to be busy: prompts differ by two orders of
magnitude, so queues grow long well before pods are always busy."""
REQUESTS_TARGET = 0.5
"""Share of the requests that a decode pod carries which it is meant to have. When prediction fails,
three times as many pages miss at once (arXiv 2608.08097) and a step may take twice as long: the
pods there are must bear that until others have started."""
LINK_TARGET = 0.7
"""Of a link's bandwidth. The engine's own cap stops prefetching at 0.8: a link in use beyond this
already costs late pages."""
DRAIN_SECONDS = 60.0
"""Time in which what waits beyond the normal is to be worked off."""
NORMAL_REQUESTS = 2.0
"""In a prefill pod that is well used: one in work, and one behind it."""
QUEUE_SHARE = 0.5
"""Part of the time to first token that may be spent waiting. Beyond it more pods help; where the
prompt itself takes the time, they do not."""
QUANTILE_SECONDS = 90.0
"""A quantile of one minute is of the pods there are once all of them are older than this."""
QUEUE_STEP = 1.5
"""At most so many times the pods there are, for waiting too long."""
EXPORT_SECONDS = 10.0
"""Age of an export that no decode pod has taken up, from which decode is what holds prefill up."""
FULL = 0.98
"""Share of used slots at which the fast tier counts as full. Least recently used pages stay, so a
full one is a fault only when pages miss as well."""
LEAST_HIT = 0.9


@dataclass(frozen=True)
class Demand:
    """Pods that one resource asks for, not rounded, and why in words."""

    pods: float
    reason: Reason
    message: str
    load: float = 0.0
    """Part of ``pods`` that the load of this moment asks for."""


def prefill_demand(
    role: RoleSignals,
    fleet: Fleet,
    spec: ScalingSpec,
    history: RoleHistory,
    now: float,
) -> Demand:
    """Of prefill pods; ``history.capacity`` is in prompt tokens a second of a busy pod."""
    load = _prompt_load(role, history, now)
    demands = [
        load,
        *_queue_demand(role, spec),
        _link_demand(role, spec.behaviour, Reason.EXPORT_LINK),
    ]
    found = max(demands, key=lambda demand: demand.pods)
    waiting = unread_exports(fleet)
    if found.pods > role.replicas and waiting > 0 and (fleet.export_seconds or 0) > EXPORT_SECONDS:
        found = Demand(
            role.replicas,
            Reason.EXPORTS,
            f"{waiting:.0f} exports wait for a decode pod: more prefill pods would only make more",
        )
    return replace(found, load=load.load)


def decode_demand(fleet: Fleet, spec: ScalingSpec, history: RoleHistory, now: float) -> Demand:
    """Of decode pods; ``history.capacity`` is as of :func:`capacity.decode_share`."""
    load = _request_load(fleet, spec, history, now)
    role = fleet.decode
    demands = [
        load,
        *_queue_demand(role, spec),
        _link_demand(role, spec.behaviour, Reason.FETCH_LINK),
    ]
    hit, used = fleet.hit.value, fleet.slots.value
    if hit is not None and used is not None and used >= FULL and hit < LEAST_HIT:
        demands.append(
            Demand(
                role.replicas,
                Reason.FAST_TIER,
                f"the fast tiers are full, and {hit:.0%} of the pages are resident",
            )
        )
    return replace(max(demands, key=lambda demand: demand.pods), load=load.load)


def requests_of(role: RoleSignals) -> float:
    """Requests in work or waiting."""
    return total(pod.running for pod in role.pods) + total(pod.waiting for pod in role.pods)


def unread_exports(fleet: Fleet) -> float:
    """Exports without a decode request: one stays outstanding until its answer ends."""
    if fleet.prefill is None:
        return 0.0
    return max(0.0, total([fleet.exports]) - requests_of(fleet.decode))


def _prompt_load(role: RoleSignals, history: RoleHistory, now: float) -> Demand:
    """By the tokens that come, which are those served and those by which the queue grows: full
    pods serve no more than they can, however much comes. And by those that wait, over a time."""
    if history.capacity is None:
        return Demand(0.0, Reason.LOAD, "no prompt yet")
    served, started = total(pod.tokens for pod in role.pods), total([role.queue.rate])
    useful = history.capacity * BUSY_TARGET
    tokens = served / started if started > 0 else 0.0
    present = requests_of(role)
    arriving = max(0.0, served + queue_growth(history, now, present) * tokens)
    waiting = max(0.0, present - NORMAL_REQUESTS * role.ready) * tokens
    return _load(
        arriving / useful,
        waiting / DRAIN_SECONDS / useful,
        f"{arriving:.0f} prompt tokens arrive a second and {waiting:.0f} wait, and a pod is to "
        f"compute {useful:.0f} a second",
        history,
        now,
    )


def _request_load(fleet: Fleet, spec: ScalingSpec, history: RoleHistory, now: float) -> Demand:
    """By the requests in work and those by which the queue grows in the time of one answer; and by
    those that wait, here or as exports, over a time."""
    role = fleet.decode
    share = 1.0 if history.capacity is None else history.capacity
    carried = planned_requests(fleet, spec) * share * REQUESTS_TARGET
    running, started = total(pod.running for pod in role.pods), total([role.queue.rate])
    exports = unread_exports(fleet)
    waiting = total(pod.waiting for pod in role.pods) + exports
    answer_seconds = running / started if started > 0 else DRAIN_SECONDS
    growth = queue_growth(history, now, running + waiting)
    # Answers that take too long are more at once than they would be within the SLO.
    tpot = role.latency.value
    in_time = min(1.0, spec.slo.tpot_seconds / tpot) if tpot else 1.0
    wanted = max(0.0, (running + growth * answer_seconds) * in_time)
    return _load(
        wanted / carried,
        waiting * min(1.0, answer_seconds / DRAIN_SECONDS) / carried,
        f"{wanted:.0f} requests are in work or arrive and {waiting:.0f} wait, {exports:.0f} of "
        f"them with prefill, and a pod is to have {carried:.1f}",
        history,
        now,
        Reason.EXPORTS if 2 * exports > waiting else Reason.QUEUE,
    )


def _load(
    current: float,
    queued: float,
    message: str,
    history: RoleHistory,
    now: float,
    waiting: Reason = Reason.QUEUE,
) -> Demand:
    """What there is and, of what is coming and what waits, the larger."""
    coming = rise(history, now, current)
    if coming >= 0.1:
        message = f"{message}; work for {coming:.1f} pods more is coming"
    reason = waiting if queued > coming else Reason.LOAD
    return Demand(current + max(coming, queued), reason, message, load=current)


def _queue_demand(role: RoleSignals, spec: ScalingSpec) -> list[Demand]:
    """Waiting too long. What was waited before the newest pod came says nothing about it."""
    waited, allowed = role.queue.value, QUEUE_SHARE * spec.slo.ttft_seconds
    young = sum(pod.ready_seconds < QUANTILE_SECONDS for pod in role.pods)
    if waited is None or waited <= allowed or role.ready < role.replicas or young:
        return []
    return [
        Demand(
            role.replicas * min(QUEUE_STEP, waited / allowed),
            Reason.QUEUE,
            f"requests wait {waited:.2f} s, and {allowed:.2f} s is what the SLO leaves",
        )
    ]


def _link_demand(role: RoleSignals, behaviour: Behaviour, reason: Reason) -> Demand:
    """By the busiest link of any pod, and not by the mean, which would hide it."""
    pods = warm(role.pods, behaviour)
    busiest, name = max(
        (
            (link.utilisation, name)
            for pod in pods
            for name, link in pod.links.items()
            if link.utilisation is not None
        ),
        default=(0.0, "link"),
    )
    return Demand(
        len(pods) * busiest / LINK_TARGET,
        reason,
        f"the busiest {name} link is {busiest:.0%} used, and {LINK_TARGET:.0%} is the most",
    )
