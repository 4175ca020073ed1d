"""What is created: OasisDeployments, and plain Deployments with as many pods."""

from __future__ import annotations

from typing import Any

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.cluster.kinds import CHILD_BY_KIND
from oasis_operator.desired.build import Images, desired
from oasis_operator.desired.limits import UNBOUNDED
from oasis_operator.desired.placement import placements
from oasis_operator.desired.revision_state import goal_of
from oasis_operator.desired.rollout import decide_rollout

Manifest = dict[str, Any]
PREFILL, DECODE, ROUTER = 4, 5, 1
PODS = PREFILL + DECODE + ROUTER

ODEPS = "/apis/oasiskv.io/v1alpha1/namespaces/{}/oasisdeployments"
WORKLOADS = "/apis/apps/v1/namespaces/{}/deployments"
IMAGES = Images(engine="runtime:test", router="router:test")
_SOON_GONE = {"metadata": {"annotations": {"test.oasiskv.io/drain-delay": "1s"}}}


def namespace(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def name_of(number: int) -> str:
    return f"d{number:03}"


def oasis_deployment(number: int) -> Manifest:
    """Two roles and a router, whose fake pods become ready at once."""
    return {
        "apiVersion": "oasiskv.io/v1alpha1",
        "kind": "OasisDeployment",
        "metadata": {"name": name_of(number)},
        "spec": {
            "model": {"image": {"path": "/models/tiny"}},
            "prefill": {"replicas": PREFILL, "podTemplate": _SOON_GONE},
            "decode": {"replicas": DECODE, "podTemplate": _SOON_GONE},
            "router": {"replicas": ROUTER},
        },
    }


def objects(number: int, where: str) -> list[Manifest]:
    """What the operator makes of an OasisDeployment, as a user would write it."""
    body = oasis_deployment(number)
    identity = {"namespace": where, "uid": "", "generation": 1}
    od = OasisDeployment.parse(body | {"metadata": body["metadata"] | identity})
    built = desired(
        od,
        IMAGES,
        lambda revision: decide_rollout(goal_of(od, revision), None, {}, UNBOUNDED),
        placements(od, None, {}),
    )
    return [_without_owner(item) for item in built.objects]


def _without_owner(item: Manifest) -> Manifest:
    metadata = {key: value for key, value in item["metadata"].items() if key != "ownerReferences"}
    return item | {"metadata": metadata}


def path_of(item: Manifest) -> str:
    """Where an object is applied."""
    metadata = item["metadata"]
    return CHILD_BY_KIND[item["kind"]].path(metadata["namespace"], metadata["name"])


def plain_deployment(number: int) -> Manifest:
    """As many pods in one Deployment, with nothing around it."""
    labels = {"app": name_of(number)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name_of(number), "labels": labels},
        "spec": {
            "replicas": PODS,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, **_SOON_GONE["metadata"]},
                "spec": {"containers": [{"name": "engine", "image": "runtime:test"}]},
            },
        },
    }
