"""What makes the engines' pods, with their configuration: one pair per role and revision.

A Deployment, or of engines on several nodes a LeaderWorkerSet: a group of pods is one engine, and
is made and ends as one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.desired.config_map import CONFIG_VOLUME, config_map
from oasis_operator.desired.engine_config import engine_config, engine_yaml
from oasis_operator.desired.inputs import with_inputs
from oasis_operator.desired.metadata import (
    ALLOCATION,
    IMAGE,
    REVISION_LABEL,
    Component,
    Manifest,
    manifest,
    selector,
    workload_name,
)
from oasis_operator.desired.numa import numa_settings
from oasis_operator.desired.placement import Placements
from oasis_operator.desired.pod import engine_pod, worker_pod
from oasis_operator.desired.pod_maker import DEPLOYMENT, LEADER, LEADER_WORKER_SET, WORKER
from oasis_operator.desired.roles import RolePlan, role_plans

LEADER_WORKER_SET_API = "leaderworkerset.x-k8s.io/v1"
GROUP_LABEL = "leaderworkerset.sigs.k8s.io/group-key"
"""Its controller gives the pods of one group the same value."""


@dataclass(frozen=True)
class RoleContent:
    """What one role's pods are, but for the revision.

    ``worker``: of engines on several nodes, the pods beside the one that answers.
    """

    role: RolePlan
    config: str
    template: Manifest
    worker: Manifest | None = None


def role_contents(
    od: OasisDeployment, image: str, placements: Placements
) -> tuple[RoleContent, ...]:
    """The content of every role."""
    return tuple(
        RoleContent(
            role,
            engine_yaml(engine_config(od, role)),
            engine_pod(od, role, image, config_map="", mode=mode),
            worker_pod(od, role, image, mode) if od.spec.engine.nodes > 1 else None,
        )
        for role in role_plans(od)
        for mode in (placements[role.component].mode,)
    )


def role_objects(
    od: OasisDeployment, content: RoleContent, revision: str, replicas: int
) -> list[Manifest]:
    """ConfigMap and Deployment or LeaderWorkerSet of one role in one revision."""
    component = content.role.component
    name = workload_name(od, revision, component)
    template = _of_revision(content.template, revision, name)
    if content.worker is None:
        workload = _deployment(od, component, revision, replicas, template)
    else:
        worker = _of_revision(content.worker, revision, name)
        workload = _groups(od, component, revision, replicas, template, worker)
    return [
        config_map(od, component, revision, name, content.config),
        with_inputs(workload, revision, _from_spec(od, content.role)),
    ]


def _of_revision(pod: Manifest, revision: str, config: str) -> Manifest:
    """A pod template with its label, and the name of its ConfigMap."""
    template = copy.deepcopy(pod)
    template["metadata"]["labels"][REVISION_LABEL] = revision
    for volume in template["spec"]["volumes"]:
        if volume["name"] == CONFIG_VOLUME:
            volume["configMap"]["name"] = config
    return template


def _deployment(
    od: OasisDeployment, component: Component, revision: str, replicas: int, template: Manifest
) -> Manifest:
    name = workload_name(od, revision, component)
    label = {REVISION_LABEL: revision}
    return manifest(od, "apps/v1", DEPLOYMENT, name, component, label) | {
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 1,
            "progressDeadlineSeconds": od.spec.updates.progress_deadline_seconds,
            "selector": {"matchLabels": selector(od, component) | label},
            "template": template,
        }
    }


def _groups(
    od: OasisDeployment,
    component: Component,
    revision: str,
    replicas: int,
    leader: Manifest,
    worker: Manifest,
) -> Manifest:
    """Source: LeaderWorkerSet v1 and vLLM's documentation, "LWS": the pods of a group start at
    the same time, and one that ends takes the others with it, for a rank that is started again
    finds no place among the others."""
    name = workload_name(od, revision, component)
    label = {REVISION_LABEL: revision}
    return manifest(od, LEADER_WORKER_SET_API, LEADER_WORKER_SET, name, component, label) | {
        "spec": {
            "replicas": replicas,
            "startupPolicy": "LeaderCreated",
            "leaderWorkerTemplate": {
                "size": od.spec.engine.nodes,
                "restartPolicy": "RecreateGroupOnPodRestart",
                LEADER: leader,
                WORKER: worker,
            },
        }
    }


def _from_spec(od: OasisDeployment, role: RolePlan) -> Iterator[str]:
    if od.spec.image:
        yield IMAGE
    if numa_settings(od, role).mode != "auto":
        yield ALLOCATION
