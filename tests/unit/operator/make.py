"""OasisDeployments and live objects for the tests of the operator."""

from __future__ import annotations

import copy
from typing import Any

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.desired.build import Desired, Images, desired
from oasis_operator.desired.limits import UNBOUNDED
from oasis_operator.desired.metadata import (
    COMPONENT_LABEL,
    DEPLOYMENT_LABEL,
    REVISION_LABEL,
    Component,
    Manifest,
)
from oasis_operator.desired.placement import Placement, placements
from oasis_operator.desired.revision_state import goal_of
from oasis_operator.desired.rollout import Rollout, decide_rollout
from oasis_operator.reconcile.observed import ObjectKey

IMAGES = Images(engine="runtime:1", router="router:1")
MODEL = {"image": {"path": "/models/tiny"}}


def deployment(name: str = "chat", uid: str = "uid-1", **spec: Any) -> OasisDeployment:
    """An OasisDeployment of the given spec fields, with a model and two roles unless said."""
    fields = {"model": MODEL, "prefill": {}, **spec}
    return OasisDeployment.parse(
        {
            "metadata": {"name": name, "namespace": "team", "uid": uid, "generation": 3},
            "spec": {key: value for key, value in fields.items() if value is not None},
        }
    )


def alone(od: OasisDeployment, revision: str) -> Rollout:
    """The rollout of a cluster that has nothing older."""
    return decide_rollout(goal_of(od, revision), None, {}, UNBOUNDED)


def built(od: OasisDeployment, images: Images = IMAGES) -> Desired:
    return desired(od, images, lambda revision: alone(od, revision), by_kubelet(od))


def by_kubelet(od: OasisDeployment) -> dict[Component, Placement]:
    """The placements of a cluster without dynamic resource allocation."""
    return placements(od, None, {})


def named(objects: Desired, kind: str, name: str) -> Manifest:
    return next(item for item in objects.objects if ObjectKey.of(item) == ObjectKey(kind, name))


def router_name(od: OasisDeployment) -> str:
    return f"{od.name}-{built(od).rollout.target}-router"


def stored(objects: Desired) -> dict[ObjectKey, Manifest]:
    """The objects as an API server would hold them: with fields that it adds itself."""
    out = {}
    for item in objects.objects:
        live = copy.deepcopy(item)
        live["metadata"] |= {"uid": f"uid-of-{item['metadata']['name']}", "resourceVersion": "7"}
        live["metadata"]["generation"] = 1
        if live["kind"] == "Deployment":
            live["spec"]["template"]["spec"]["dnsPolicy"] = "ClusterFirst"
        out[ObjectKey.of(live)] = live
    return out


def progressed(live: Manifest, *, ready: bool, established: bool) -> Manifest:
    """A Deployment with the status that its controller writes."""
    wanted = live["spec"]["replicas"]
    count = wanted if ready else 0
    reason = "NewReplicaSetAvailable" if established else "ReplicaSetUpdated"
    return live | {
        "status": {
            "observedGeneration": 1,
            "replicas": wanted,
            "updatedReplicas": wanted,
            "readyReplicas": count,
            "availableReplicas": count,
            "conditions": [{"type": "Progressing", "status": "True", "reason": reason}],
        }
    }


def pod(
    name: str = "chat-0123abcd-prefill-x",
    *,
    component: str = "prefill",
    revision: str = "0123abcd",
    ready: bool = False,
    created: str = "2026-01-01T00:00:00Z",
    **status: Any,
) -> Manifest:
    """A pod with the given status fields."""
    conditions = [
        {"type": "PodScheduled", "status": "True"},
        {"type": "Ready", "status": "True" if ready else "False"},
    ]
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-of-{name}",
            "resourceVersion": "5",
            "creationTimestamp": created,
            "labels": {
                DEPLOYMENT_LABEL: "chat",
                COMPONENT_LABEL: component,
                REVISION_LABEL: revision,
            },
        },
        "status": {"phase": "Running", "conditions": conditions, **status},
    }
