"""What the operator decided or saw change, for people who ask why: told as Events. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from oasis_operator.api.status import Status
from oasis_operator.desired.metadata import Component
from oasis_operator.reconcile.conditions import (
    NUMA_ALIGNED,
    READY,
    SPARSITY_HEALTHY,
    TRANSPORT_HEALTHY,
)
from oasis_operator.reconcile.observed import ObjectKey
from oasis_operator.reconcile.serving import role_status

_MEASURED = (NUMA_ALIGNED, TRANSPORT_HEALTHY, SPARSITY_HEALTHY)


@dataclass(frozen=True)
class Decision:
    """One sentence, and whether somebody should look into it."""

    reason: str
    message: str
    warning: bool = False


def decisions(before: Status, after: Status, alarmed: Collection[str]) -> list[Decision]:
    """What is different, in the order in which it happens.

    It follows from the two statuses alone, so a pass that is repeated says the same, and one in
    which nothing changed says nothing.

    Args:
        before: as the resource has it.
        after: as it will be written.
        alarmed: types of conditions that an alarm is told about already.
    """
    return [
        *_revisions(before, after),
        *_replicas(before, after),
        *_mode(before, after),
        *_conditions(before, after, alarmed),
    ]


def contested(name: ObjectKey) -> Decision:
    """Somebody else writes an object of the OasisDeployment again and again."""
    return Decision(
        "Contested",
        f"{name.kind} {name.name} was changed by others and set right many times in a row, which "
        "is done ever more seldom now: whoever manages it too (metadata.managedFields has the "
        "names) has to leave it alone",
        warning=True,
    )


def _revisions(before: Status, after: Status) -> Iterator[Decision]:
    if before.revision and after.revision and before.revision != after.revision:
        serving = after.serving_revision
        meanwhile = f"requests go to {serving}" if serving else "nobody serves"
        yield Decision(
            "RevisionStarted",
            f"the spec is revision {after.revision} now: {meanwhile} until its pods are ready",
        )
    old, new = before.serving_revision, after.serving_revision
    if before.revision and new and old != new:
        instead = f" instead of {old}" if old else " now"
        yield Decision("RevisionServes", f"requests go to revision {new}{instead}")


def _replicas(before: Status, after: Status) -> Iterator[Decision]:
    for component in Component:
        old, new = _desired(before, component), _desired(after, component)
        if old is not None and new is not None and old != new:
            yield Decision("Scaled", f"{component}: {new} pods instead of {old}")


def _desired(status: Status, component: Component) -> int | None:
    role = role_status(status, component)
    return role.desired_replicas if role else None


def _mode(before: Status, after: Status) -> Iterator[Decision]:
    if before.mode and after.mode and before.mode != after.mode:
        how = {"sparse": "sparsely", "dense": "densely"}[after.mode]
        yield Decision("ModeChanged", f"most decode steps run {how} now")


def _conditions(before: Status, after: Status, alarmed: Collection[str]) -> Iterator[Decision]:
    known = {item.type: item.status for item in before.conditions or []}
    # That pods of another spec are not ready yet is no news.
    same_spec = before.observed_generation == after.observed_generation
    for item in after.conditions or []:
        old = known.get(item.type)
        if item.status == old or item.type in alarmed:
            continue
        recovered = item.status == "True" and (item.type == READY or old == "False")
        lost = item.status == "False" and (item.type in _MEASURED or (old == "True" and same_spec))
        if item.type in (READY, *_MEASURED) and (recovered or lost):
            yield Decision(item.reason, f"{item.type}: {item.message}", warning=lost)
