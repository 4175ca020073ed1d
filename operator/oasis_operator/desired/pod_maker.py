"""The kinds of objects that make an OasisDeployment's pods, and where their templates are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oasis_operator.desired.metadata import Manifest

DEPLOYMENT = "Deployment"
"""Of engines on one node each, and of routers."""
LEADER_WORKER_SET = "LeaderWorkerSet"
"""Of engines on several nodes each (leaderworkerset.x-k8s.io/v1): a replica is a group of pods."""
LEADER, WORKER = "leaderTemplate", "workerTemplate"

TEMPLATE_FIELD: Mapping[str, str] = {
    DEPLOYMENT: "template",
    LEADER_WORKER_SET: "leaderWorkerTemplate",
}
"""By kind, the field of ``spec`` whose change starts pods anew."""


def makes_pods(kind: str) -> bool:
    return kind in TEMPLATE_FIELD


def template_of(body: Mapping[str, Any]) -> Manifest:
    """Of an object that makes pods."""
    found: Manifest = body["spec"][TEMPLATE_FIELD[body["kind"]]]
    return found


def pod_templates(body: Mapping[str, Any]) -> tuple[Manifest, ...]:
    """What pods are made from, those first that answer requests; none of any other kind."""
    if not makes_pods(body["kind"]):
        return ()
    template = template_of(body)
    if body["kind"] == DEPLOYMENT:
        return (template,)
    return template[LEADER], template[WORKER]
