"""desired and observed -> what to write. Pure, and empty when there is nothing to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from oasis_operator.api.quantity import same_quantity
from oasis_operator.desired.inputs import as_it_was_made
from oasis_operator.desired.metadata import (
    COMPONENT_LABEL,
    HASH_ANNOTATION,
    REVISION_LABEL,
    Component,
    Manifest,
)
from oasis_operator.desired.pod_maker import makes_pods, pod_templates
from oasis_operator.desired.rollout import Rollout
from oasis_operator.reconcile.foreign_fields import (
    template_written_by_others,
    written_by_others,
)
from oasis_operator.reconcile.observed import ObjectKey


@dataclass(frozen=True)
class Plan:
    """Objects to apply, in order; what makes pods and gets other replicas; objects to delete."""

    apply: tuple[Manifest, ...]
    delete: tuple[ObjectKey, ...]
    scale: Mapping[ObjectKey, int] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        return not self.apply and not self.delete and not self.scale


def plan(objects: Iterable[Manifest], rollout: Rollout, live: Mapping[ObjectKey, Manifest]) -> Plan:
    """The writes that bring ``live`` to ``objects``, leaving what the rollout still needs."""
    wanted = {
        ObjectKey.of(item): as_it_was_made(item, live[key])
        if (key := ObjectKey.of(item)) in live and not template_written_by_others(live[key])
        else item
        for item in objects
    }
    apply = tuple(
        item for key, item in wanted.items() if key not in live or not in_place(item, live[key])
    )
    kept = {key: body for key, body in live.items() if _revision(body) in rollout.kept}
    needed = frozenset(_component(body) for body in kept.values())
    claims = frozenset(
        name for body in (*wanted.values(), *kept.values()) for name in _claims(body)
    )
    delete = tuple(
        key
        for key, body in live.items()
        if key not in wanted and key.name not in claims and not _still_needed(body, rollout, needed)
    )
    return Plan(apply, _workloads_first(delete), _scaled(rollout, live))


def _scaled(rollout: Rollout, live: Mapping[ObjectKey, Manifest]) -> dict[ObjectKey, int]:
    """Engines of the serving revision that give up pods for the target."""
    return {
        key: rollout.resized[component]
        for key, body in live.items()
        if makes_pods(key.kind) and _revision(body) == rollout.serving
        for component in rollout.resized
        if component == _component(body) and rollout.resized[component] != body["spec"]["replicas"]
    }


def in_place(wanted: Manifest, live: Manifest) -> bool:
    """Whether ``live`` was made from this very manifest, still has all that it says, and nothing
    that others wrote over it."""
    annotations = live["metadata"].get("annotations") or {}
    mark = wanted["metadata"]["annotations"][HASH_ANNOTATION]
    return (
        annotations.get(HASH_ANNOTATION) == mark
        and covers(wanted, live)
        and not written_by_others(live)
    )


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


def _revision(body: Manifest) -> str | None:
    revision: str | None = body["metadata"]["labels"].get(REVISION_LABEL)
    return revision


def _component(body: Manifest) -> str:
    component: str = body["metadata"]["labels"].get(COMPONENT_LABEL, "")
    return component


def _claims(body: Manifest) -> Iterator[str]:
    """Names of the claim templates that the pods of an object use."""
    for template in pod_templates(body):
        for claim in template["spec"].get("resourceClaims") or ():
            yield claim.get("resourceClaimTemplateName", "")


def _still_needed(body: Manifest, rollout: Rollout, needed: frozenset[str]) -> bool:
    """Engines and routers of other revisions, and the Services and policies of their components."""
    revision, component = _revision(body), _component(body)
    if revision is None:
        return component in needed
    return revision in (rollout.routed if component == Component.ROUTER else rollout.kept)


def _workloads_first(keys: tuple[ObjectKey, ...]) -> tuple[ObjectKey, ...]:
    return tuple(sorted(keys, key=lambda key: (not makes_pods(key.kind), key)))
