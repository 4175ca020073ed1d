"""Everything that an OasisDeployment should consist of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.desired import router_access
from oasis_operator.desired.claim_template import claim_template
from oasis_operator.desired.disruption_budget import disruption_budget
from oasis_operator.desired.inputs import revision_of
from oasis_operator.desired.metadata import (
    HASH_ANNOTATION,
    TEMPLATE_ANNOTATION,
    Component,
    Manifest,
)
from oasis_operator.desired.network_policy import network_policy
from oasis_operator.desired.placement import Placements
from oasis_operator.desired.pod_maker import TEMPLATE_FIELD, makes_pods
from oasis_operator.desired.revision import content_hash
from oasis_operator.desired.rollout import Rollout
from oasis_operator.desired.router import router_deployment
from oasis_operator.desired.scale_target import is_scaled_externally, scale_target
from oasis_operator.desired.service import engine_service, router_service
from oasis_operator.desired.workload import role_contents, role_objects


@dataclass(frozen=True)
class Images:
    """Images of the pods."""

    engine: str
    router: str


@dataclass(frozen=True)
class Desired:
    """``objects`` in the order they are to be applied."""

    rollout: Rollout
    objects: tuple[Manifest, ...]


def desired(
    od: OasisDeployment,
    images: Images,
    decide: Callable[[str], Rollout],
    placements: Placements,
) -> Desired:
    """All objects of ``od``.

    Args:
        od: the custom resource.
        images: images to run, already resolved from spec, cluster and defaults.
        decide: revision of the spec -> the step of the rollout that the cluster allows.
        placements: who places the pods of each role.
    """
    modes = {component: placement.mode for component, placement in placements.items()}
    revision = revision_of(od, images.engine, modes)
    rollout = decide(revision)
    contents = role_contents(od, images.engine, placements)
    components = [content.role.component for content in contents]
    guarded = components if od.spec.security.network_policy else []
    objects: list[Manifest] = [
        router_access.service_account(od),
        router_access.role(od),
        router_access.role_binding(od),
        *(network_policy(od, component) for component in guarded),
        *(engine_service(od, component) for component in components),
        router_service(od, rollout.serving),
        *(disruption_budget(od, component) for component in (*components, Component.ROUTER)),
    ]
    if is_scaled_externally(od):
        objects.extend(scale_target(od, component) for component in components)
    if rollout.replicas is not None:
        for content in contents:
            component = content.role.component
            if placements[component].mode == "dra":
                template = claim_template(od, content.role)
                objects.extend([template] if template else [])
            if component in rollout.replicas:
                objects.extend(role_objects(od, content, revision, rollout.replicas[component]))
        objects.append(router_deployment(od, images.router, revision))
    return Desired(rollout, tuple(marked(item) for item in objects))


def marked(item: Manifest) -> Manifest:
    """With the hash of its own content, by which a changed manifest is told from drift.

    Without a template of pods, which has a hash of its own.
    """
    annotations = item["metadata"].get("annotations", {})
    mark = {HASH_ANNOTATION: content_hash(_without_template(item), 16)}
    return item | {"metadata": item["metadata"] | {"annotations": annotations | mark}}


def _without_template(item: Manifest) -> Manifest:
    if not makes_pods(item["kind"]):
        return item
    annotations = {
        key: value
        for key, value in item["metadata"]["annotations"].items()
        if key != TEMPLATE_ANNOTATION
    }
    template = TEMPLATE_FIELD[item["kind"]]
    spec = {key: value for key, value in item["spec"].items() if key != template}
    return item | {"metadata": item["metadata"] | {"annotations": annotations}, "spec": spec}
