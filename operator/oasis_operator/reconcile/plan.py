"""desired and observed -> what to write. Pure, and empty when there is nothing to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from oasis_operator.api.quantity import same_quantity
from oasis_operator.desired.metadata import (
    COMPONENT_LABEL,
    HASH_ANNOTATION,
    REVISION_LABEL,
    Component,
    Manifest,
)
from oasis_operator.desired.rollout import Rollout
from oasis_operator.reconcile.observed import ObjectKey


@dataclass(frozen=True)
class Plan:
    """Objects to apply, in order, and objects to delete after that."""

    apply: tuple[Manifest, ...]
    delete: tuple[ObjectKey, ...]

    @property
    def empty(self) -> bool:
        return not self.apply and not self.delete


def plan(objects: Iterable[Manifest], rollout: Rollout, live: Mapping[ObjectKey, Manifest]) -> Plan:
    """The writes that bring ``live`` to ``objects``, leaving what the rollout still needs."""
    wanted = {ObjectKey.of(item): item for item in objects}
    apply = tuple(
        item for key, item in wanted.items() if key not in live or not in_place(item, live[key])
    )
    needed = _components_of(rollout.kept, live)
    delete = tuple(
        key
        for key, body in live.items()
        if key not in wanted and not _still_needed(body, rollout, needed)
    )
    return Plan(apply, _workloads_first(delete))


def in_place(wanted: Manifest, live: Manifest) -> bool:
    """Whether ``live`` was made from this very manifest and still has all that it says."""
    annotations = live["metadata"].get("annotations") or {}
    mark = wanted["metadata"]["annotations"][HASH_ANNOTATION]
    return annotations.get(HASH_ANNOTATION) == mark and covers(wanted, live)


def covers(wanted: Any, live: Any) -> bool:
    """Whether every field of ``wanted`` is in ``live``; fields of others do not count.

    Quantities that the API server spells its own way are equal, and a field without content
    says nothing.
    """
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(
            covers(value, live.get(key)) for key, value in wanted.items() if _says_something(value)
        )
    if isinstance(wanted, list):
        return (
            isinstance(live, list) and len(wanted) == len(live) and all(map(covers, wanted, live))
        )
    return bool(wanted == live) or same_quantity(wanted, live)


def _says_something(value: Any) -> bool:
    return value is not None and value != {} and value != []


def _components_of(revisions: frozenset[str], live: Mapping[ObjectKey, Manifest]) -> frozenset[str]:
    return frozenset(
        body["metadata"]["labels"].get(COMPONENT_LABEL, "")
        for body in live.values()
        if body["metadata"]["labels"].get(REVISION_LABEL) in revisions
    )


def _still_needed(body: Manifest, rollout: Rollout, needed: frozenset[str]) -> bool:
    """The pods of a kept revision, and the Services and policies of their components."""
    labels = body["metadata"]["labels"]
    revision, component = labels.get(REVISION_LABEL), labels.get(COMPONENT_LABEL)
    if component == Component.ROUTER:
        return rollout.serving != rollout.target
    return revision in rollout.kept if revision else component in needed


def _workloads_first(keys: tuple[ObjectKey, ...]) -> tuple[ObjectKey, ...]:
    return tuple(sorted(keys, key=lambda key: (key.kind != "Deployment", key)))
