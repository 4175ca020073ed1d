"""Names, labels and owner reference of the objects that belong to an OasisDeployment."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from oasis_operator.api.crd import KIND
from oasis_operator.api.definition import API_VERSION, GROUP
from oasis_operator.api.resource import OasisDeployment

Manifest = dict[str, Any]

FIELD_MANAGER = "oasiskv-operator"
"""Who owns the fields that the operator writes, but for those of a status."""
DEPLOYMENT_LABEL = f"{GROUP}/deployment"
"""Name of the OasisDeployment; the operator watches nothing without it."""
COMPONENT_LABEL = f"{GROUP}/component"
REVISION_LABEL = f"{GROUP}/revision"
HASH_ANNOTATION = f"{GROUP}/applied-hash"
INPUTS_ANNOTATION = f"{GROUP}/inputs-hash"
"""On a Deployment: hash of what its pods follow from, whatever version of the operator made it."""
TEMPLATE_ANNOTATION = f"{GROUP}/template-hash"
"""On a Deployment: hash of the pod template as the operator wrote it."""
WANTED_ANNOTATION = f"{GROUP}/wanted-replicas"
"""On a Deployment that has fewer replicas for the moment than its role asks for."""

FROM_SPEC_ANNOTATION = f"{GROUP}/from-spec"
"""On a Deployment: which of the things that the operator chooses where the spec says nothing were
said by the spec. They are no reason to stay with them when it says them no more."""
IMAGE, ALLOCATION = "image", "allocation"
"""Those things."""


class Component(StrEnum):
    """What a pod is. An engine's component is the section of the spec that it comes from."""

    PREFILL = "prefill"
    DECODE = "decode"
    ROUTER = "router"


def workers_of(component: Component | str) -> str:
    """What the component label says of pods that compute for an engine on another node.

    Not what it says of the engine, which has a pod that answers for all of them: nobody may take
    them for engines.
    """
    return f"{component}-worker"


def component_name(od: OasisDeployment, component: Component) -> str:
    """Name of what a component has one of: Service, disruption budget, policy."""
    return f"{od.name}-{component}"


def workload_name(od: OasisDeployment, revision: str, component: Component) -> str:
    """Name of an engine Deployment: pods of two revisions never share one."""
    return f"{od.name}-{revision}-{component}"


def selector(od: OasisDeployment, component: Component) -> dict[str, str]:
    """Labels that choose the pods of a component over all revisions."""
    return {DEPLOYMENT_LABEL: od.name, COMPONENT_LABEL: component.value}


def labels(od: OasisDeployment, component: Component | None = None) -> dict[str, str]:
    """Labels of an object, with those that Kubernetes recommends."""
    out = {
        "app.kubernetes.io/name": "oasiskv",
        "app.kubernetes.io/instance": od.name,
        "app.kubernetes.io/managed-by": "oasiskv-operator",
        DEPLOYMENT_LABEL: od.name,
    }
    if component is not None:
        out["app.kubernetes.io/component"] = component.value
        out[COMPONENT_LABEL] = component.value
    return out


def owner_reference(od: OasisDeployment) -> Manifest:
    """Makes the garbage collector delete an object with its OasisDeployment."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": od.name,
        "uid": od.uid,
        "controller": True,
    }


def manifest(
    od: OasisDeployment,
    api_version: str,
    kind: str,
    name: str,
    component: Component | None = None,
    extra_labels: dict[str, str] | None = None,
) -> Manifest:
    """An owned object without its content."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": od.namespace,
            "labels": labels(od, component) | (extra_labels or {}),
            "ownerReferences": [owner_reference(od)],
        },
    }
