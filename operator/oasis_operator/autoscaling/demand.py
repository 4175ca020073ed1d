"""How many pods each thing that can run short asks for. The largest demand counts."""

from __future__ import annotations

from dataclasses import dataclass

from oasis_operator.autoscaling.capacity import planned_requests, warm
from oasis_operator.autoscaling.measured import Fleet, Pod, RoleSignals, total
from oasis_operator.autoscaling.policy import Behaviour, ScalingSpec
from oasis_operator.autoscaling.reason import Reason

BUSY_TARGET = 0.7
"""Share of the time that a prefill pod is meant to be busy: prompts differ by two orders of
magnitude, so queues grow long well before pods are always busy."""
REQUESTS_TARGET = 0.8
"""Share of the requests that a decode pod carries which it is meant to have."""
LINK_TARGET = 0.7
"""Of a link's bandwidth. The engine's own cap stops prefetching at 0.8: a link in use beyond this
already costs late pages."""
DRAIN_SECONDS = 30.0
"""Time in which the pods that are asked for can work off what waits."""
QUEUE_SHARE = 0.5
"""Part of the time to first token that may be spent waiting. Beyond it more pods help; where the
prompt itself takes the time, they do not."""
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


def prefill_demand(
    role: RoleSignals, fleet: Fleet, spec: ScalingSpec, capacity: float | None
) -> Demand:
    """Of prefill pods; ``capacity`` is in prompt tokens a second of a busy pod."""
    demands = [
        *_prompt_demands(role, capacity),
        *_queue_demand(role, spec),
        _link_demand(role, spec.behaviour, Reason.EXPORT_LINK),
    ]
    found = max(demands, key=lambda demand: demand.pods)
    waiting = unread_exports(fleet)
    if found.pods > role.replicas and waiting > 0 and (fleet.export_seconds or 0) > EXPORT_SECONDS:
        return Demand(
            role.replicas,
            Reason.EXPORTS,
            f"{waiting:.0f} exports wait for a decode pod: more prefill pods would only make more",
        )
    return found


def decode_demand(fleet: Fleet, spec: ScalingSpec, share: float) -> Demand:
    """Of decode pods; ``share`` as of :func:`capacity.decode_share`."""
    role, waiting = fleet.decode, unread_exports(fleet)
    requests = _requests(role.pods)
    carried = planned_requests(fleet, spec) * share * REQUESTS_TARGET
    load = Demand(
        requests / carried,
        Reason.LOAD,
        f"{requests:.0f} requests, of which a pod is to have {carried:.1f}",
    )
    demands = [
        load,
        *_queue_demand(role, spec),
        _link_demand(role, spec.behaviour, Reason.FETCH_LINK),
    ]
    if waiting > 0:
        demands.append(
            Demand(
                (requests + waiting) / carried,
                Reason.EXPORTS,
                f"{requests:.0f} requests and {waiting:.0f} exports that wait for a decode pod",
            )
        )
    hit, used = fleet.hit.value, fleet.slots.value
    if hit is not None and used is not None and used >= FULL and hit < LEAST_HIT:
        demands.append(
            Demand(
                role.replicas,
                Reason.FAST_TIER,
                f"the fast tiers are full, and {hit:.0%} of the pages are resident",
            )
        )
    return max(demands, key=lambda demand: demand.pods)


def unread_exports(fleet: Fleet) -> float:
    """Exports without a decode request: one stays outstanding until its answer ends."""
    if fleet.prefill is None:
        return 0.0
    return max(0.0, total([fleet.exports]) - _requests(fleet.decode.pods))


def _requests(pods: tuple[Pod, ...]) -> float:
    return total(pod.running for pod in pods) + total(pod.waiting for pod in pods)


def _prompt_demands(role: RoleSignals, capacity: float | None) -> list[Demand]:
    """By what comes, and by that and what waits."""
    if capacity is None:
        return [Demand(0.0, Reason.LOAD, "no prompt yet")]
    tokens = total(pod.tokens for pod in role.pods)
    arrivals = total([role.queue.rate])
    waiting = max(0.0, _requests(role.pods) - role.ready)
    useful = capacity * BUSY_TARGET
    rate = Demand(
        tokens / useful,
        Reason.LOAD,
        f"{tokens:.0f} prompt tokens a second, of which a pod is to have {useful:.0f}",
    )
    if arrivals <= 0 or waiting <= 0:
        return [rate]
    backlog = waiting * tokens / arrivals
    queue = Demand(
        (tokens + backlog / DRAIN_SECONDS) / useful,
        Reason.QUEUE,
        f"{tokens:.0f} prompt tokens a second and {waiting:.0f} requests that wait, and a pod is "
        f"to have {useful:.0f}",
    )
    return [rate, queue]


def _queue_demand(role: RoleSignals, spec: ScalingSpec) -> list[Demand]:
    """Waiting too long. Says nothing while pods that were asked for are not warm yet."""
    waited, allowed = role.queue.value, QUEUE_SHARE * spec.slo.ttft_seconds
    pods = warm(role.pods, spec.behaviour)
    if waited is None or waited <= allowed or len(pods) < role.replicas:
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
