"""What placement says about a role, over what its pods say; and which pods are not to be made."""

from __future__ import annotations

from dataclasses import replace

from oasis_operator.desired.build import Desired
from oasis_operator.desired.metadata import REVISION_LABEL, Manifest
from oasis_operator.desired.placement import Placement, Placements
from oasis_operator.reconcile.conditions import Draft
from oasis_operator.reconcile.observed import ObjectKey, Observed

UNSCHEDULABLE = "Unschedulable"


def withheld(wanted: Desired, placements: Placements, observed: Observed) -> Desired:
    """Without what is to run pods that never could: each would be refused again and again.

    What is there already stays: a driver that restarts must not take pods away.
    """
    if not any(placement.hold for placement in placements.values()):
        return wanted

    def stays(item: Manifest) -> bool:
        revision = item["metadata"]["labels"].get(REVISION_LABEL)
        return revision != wanted.rollout.target or ObjectKey.of(item) in observed.objects

    return replace(wanted, objects=tuple(filter(stays, wanted.objects)))


def with_placement(draft: Draft, placement: Placement) -> Draft:
    """A role's condition, with the reason why its pods cannot be placed."""
    if draft.status == "True":
        return draft
    known = placement.obstacle or placement.waiting
    if placement.hold and known is not None:
        told = f"no pods are made: {known.message}"
        return replace(draft, reason=known.reason, message=told, alarming=True)
    if draft.reason == UNSCHEDULABLE and known is not None:
        return replace(draft, reason=known.reason, message=f"{draft.message}; {known.message}")
    return draft


def numa_with_placement(draft: Draft, placements: Placements) -> Draft:
    """NUMAAligned: what was measured to be aligned is; otherwise what stands against it."""
    obstacles = [p.obstacle for p in placements.values() if p.obstacle is not None]
    if draft.status == "True" or not obstacles:
        return draft
    told = f"{draft.message}; " if draft.status == "False" else ""
    return replace(
        draft, status="False", reason=obstacles[0].reason, message=told + obstacles[0].message
    )
