"""Conditions: drafts of what is so now, and their transitions against what was so before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from oasis_operator.api.status import Condition, ConditionStatus

READY = "Ready"
PREFILL_READY = "PrefillReady"
DECODE_READY = "DecodeReady"
ROUTER_READY = "RouterReady"
NUMA_ALIGNED = "NUMAAligned"
TRANSPORT_HEALTHY = "TransportHealthy"
SPARSITY_HEALTHY = "SparsityHealthy"
SCALING_ACTIVE = "ScalingActive"


@dataclass(frozen=True)
class Draft:
    """A condition without its history.

    ``alarming`` ones are also told as an Event: somebody must do something about them.
    """

    type: str
    status: ConditionStatus
    reason: str
    message: str
    alarming: bool = False


def all_ready(count: int, component: str) -> str:
    """The message of a component whose pods are all there."""
    if count == 1:
        return f"the {component} pod is ready"
    return f"all {count} {component} pods are ready"


def with_transitions(
    drafts: Iterable[Draft], before: Iterable[Condition], now: str, generation: int
) -> list[Condition]:
    """The conditions to write; the transition time moves only with the status.

    Args:
        drafts: what is so now.
        before: what the status says.
        now: the time, RFC 3339.
        generation: generation of the spec that was looked at.
    """
    known = {condition.type: condition for condition in before}
    out = []
    for draft in drafts:
        old = known.get(draft.type)
        same = old is not None and old.status == draft.status
        out.append(
            Condition(
                type=draft.type,
                status=draft.status,
                reason=draft.reason,
                message=draft.message,
                last_transition_time=old.last_transition_time if old and same else now,
                observed_generation=generation,
            )
        )
    return out


def newly_alarming(drafts: Iterable[Draft], before: Iterable[Condition]) -> list[Draft]:
    """The alarms that the status does not tell yet."""
    known = {(item.type, item.reason, item.message) for item in before}
    return [
        draft
        for draft in drafts
        if draft.alarming and (draft.type, draft.reason, draft.message) not in known
    ]
