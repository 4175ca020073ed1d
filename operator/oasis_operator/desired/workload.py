"""Engine Deployments with their configuration: one pair per role and revision."""

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
    Manifest,
    manifest,
    selector,
    workload_name,
)
from oasis_operator.desired.numa import numa_settings
from oasis_operator.desired.placement import Placements
from oasis_operator.desired.pod import engine_pod
from oasis_operator.desired.roles import RolePlan, role_plans


@dataclass(frozen=True)
class RoleContent:
    """What one role's pods are, but for the revision."""

    role: RolePlan
    config: str
    template: Manifest


def role_contents(
    od: OasisDeployment, image: str, placements: Placements
) -> tuple[RoleContent, ...]:
    """The content of every role."""
    return tuple(
        RoleContent(
            role,
            engine_yaml(engine_config(od, role)),
            engine_pod(od, role, image, config_map="", mode=placements[role.component].mode),
        )
        for role in role_plans(od)
    )


def role_objects(
    od: OasisDeployment, content: RoleContent, revision: str, replicas: int
) -> list[Manifest]:
    """ConfigMap and Deployment of one role in one revision."""
    component = content.role.component
    name = workload_name(od, revision, component)
    chosen = selector(od, component) | {REVISION_LABEL: revision}
    template = copy.deepcopy(content.template)
    template["metadata"]["labels"] |= chosen
    for volume in template["spec"]["volumes"]:
        if volume["name"] == CONFIG_VOLUME:
            volume["configMap"]["name"] = name
    deployment = manifest(
        od, "apps/v1", "Deployment", name, component, {REVISION_LABEL: revision}
    ) | {
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 1,
            "progressDeadlineSeconds": od.spec.updates.progress_deadline_seconds,
            "selector": {"matchLabels": chosen},
            "template": template,
        }
    }
    return [
        config_map(od, component, revision, name, content.config),
        with_inputs(deployment, revision, _from_spec(od, content.role)),
    ]


def _from_spec(od: OasisDeployment, role: RolePlan) -> Iterator[str]:
    if od.spec.image:
        yield IMAGE
    if numa_settings(od, role).mode != "auto":
        yield ALLOCATION
