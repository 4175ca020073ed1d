"""What pods follow from: the revision is its hash, and every object that makes pods carries one.

Of the spec and not of the manifests: what an operator of another version makes of the same spec
is no reason to start pods anew. Any change of its pod template makes such an object do that, so a
template that was made from the same inputs stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.desired.devices import AllocationMode
from oasis_operator.desired.metadata import (
    FROM_SPEC_ANNOTATION,
    INPUTS_ANNOTATION,
    TEMPLATE_ANNOTATION,
    Component,
    Manifest,
)
from oasis_operator.desired.pod_maker import (
    DEPLOYMENT,
    LEADER,
    TEMPLATE_FIELD,
    WORKER,
    makes_pods,
    template_of,
)
from oasis_operator.desired.revision import content_hash

_NOT_OF_THE_PODS: dict[str, Any] = {
    "autoscaling": True,
    "router": True,
    "security": {"network_policy"},
    "updates": {"strategy", "max_surge", "max_unavailable"},
    "prefill": {"replicas"},
    "decode": {"replicas"},
}
"""Fields of the spec that change no engine pod. A field that is not here counts, so that a new
one cannot be forgotten."""


def revision_of(od: OasisDeployment, image: str, modes: Mapping[Component, AllocationMode]) -> str:
    """Prefill and decode change together, so one revision covers both.

    Defaults do not count, so that a new field with a default changes no pod.

    Args:
        od: the custom resource.
        image: image of its engines.
        modes: how the pods of each role get their devices.
    """
    sections = od.spec.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, exclude=_NOT_OF_THE_PODS
    )
    # A prefill section says something even when it is empty.
    spec = {name: value for name, value in sections.items() if value or name == "prefill"}
    claimed = sorted(component for component, mode in modes.items() if mode == "dra")
    return content_hash({"spec": spec, "image": image, **({"dra": claimed} if claimed else {})})


def with_inputs(workload: Manifest, inputs: Any, from_spec: Iterable[str]) -> Manifest:
    """What makes pods, with hashes of ``inputs`` and of its template.

    Args:
        workload: without annotations.
        inputs: what its template follows from.
        from_spec: what the spec says and the operator would choose otherwise.
    """
    annotations = {
        INPUTS_ANNOTATION: content_hash(inputs),
        TEMPLATE_ANNOTATION: content_hash(template_of(workload)),
    }
    told = ",".join(sorted(from_spec))
    if told:
        annotations[FROM_SPEC_ANNOTATION] = told
    return workload | {"metadata": workload["metadata"] | {"annotations": annotations}}


def as_it_was_made(wanted: Manifest, live: Manifest) -> Manifest:
    """``wanted`` with the template of ``live``, where both follow from the same inputs and another
    version of the operator wrote it. What is wrong with a template of this version is repaired.

    A ConfigMap that cannot be changed stays what it is too.
    """
    if wanted["kind"] == "ConfigMap" and live.get("immutable"):
        return wanted | {"data": live.get("data", {})}
    if not makes_pods(wanted["kind"]):
        return wanted
    mine = wanted["metadata"]["annotations"]
    theirs = live["metadata"].get("annotations") or {}
    written = theirs.get(TEMPLATE_ANNOTATION)
    if written in (None, mine[TEMPLATE_ANNOTATION]):
        return wanted
    if theirs.get(INPUTS_ANNOTATION) != mine[INPUTS_ANNOTATION]:
        return wanted
    return wanted | {
        "metadata": wanted["metadata"] | {"annotations": mine | {TEMPLATE_ANNOTATION: written}},
        "spec": wanted["spec"] | {TEMPLATE_FIELD[wanted["kind"]]: _without_nulls(live)},
    }


def _without_nulls(live: Manifest) -> Manifest:
    """Its template; an apply that names a field without a value would remove it."""
    template = template_of(live)
    if live["kind"] == DEPLOYMENT:
        return _pod_without_nulls(template)
    return template | {key: _pod_without_nulls(template[key]) for key in (LEADER, WORKER)}


def _pod_without_nulls(template: Manifest) -> Manifest:
    metadata = {key: value for key, value in template["metadata"].items() if value is not None}
    return template | {"metadata": metadata}
