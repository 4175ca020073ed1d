"""A scaling decision as pods, as a condition, and as what is told about it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.api.role_crd import ROLE_KIND
from oasis_operator.autoscaling.decide import Decision as ScalingDecision
from oasis_operator.autoscaling.decide import RoleDecision
from oasis_operator.desired.metadata import (
    COMPONENT_LABEL,
    DEPLOYMENT_LABEL,
    REVISION_LABEL,
    Component,
    Manifest,
)
from oasis_operator.reconcile.conditions import SCALING_ACTIVE, Draft
from oasis_operator.reconcile.decisions import Decision
from oasis_operator.reconcile.observed import Identity, Observed
from oasis_operator.reconcile.pods import PodView
from oasis_operator.reconcile.scaling_spec import Replicas, replicas_of
from oasis_operator.signals.fleet import RolePods
from oasis_operator.signals.prometheus import NoSignals


@dataclass(frozen=True)
class Change:
    """Another number of pods of one role, and why."""

    component: Component
    reason: str
    told: Decision


def live_replicas(od: OasisDeployment, observed: Observed, revision: str) -> Replicas:
    """As the Deployments of a revision have them: what was decided before a start."""
    views = {role: observed.workload(revision, role) for role in replicas_of(od)}
    return {
        role: view.wanted if (view := views[role]) else written
        for role, written in replicas_of(od).items()
    }


def external_replicas(od: OasisDeployment, observed: Observed) -> Replicas:
    """As somebody else asked for in the OasisRoles; where nobody did yet, as there are."""
    revision = observed.selected()
    live = live_replicas(od, observed, revision) if revision else replicas_of(od)
    asked = {
        Component(target.component): target.replicas
        for target in scale_targets(observed)
        if target.replicas is not None
    }
    return {component: asked.get(component, count) for component, count in live.items()}


@dataclass(frozen=True)
class TargetState:
    """One OasisRole as it is, and the status that it should have."""

    identity: Identity
    component: str
    replicas: int | None
    """What is asked for; ``None`` until the first number is written."""
    status: Manifest
    wanted_status: Manifest


def scale_targets(observed: Observed) -> tuple[TargetState, ...]:
    """Those that are there. Pods are those of the revision that serves."""
    revision = observed.selected()
    found = []
    for key, body in observed.objects.items():
        if key.kind != ROLE_KIND or revision is None:
            continue
        labels = body["metadata"]["labels"]
        component = labels[COMPONENT_LABEL]
        view = observed.workload(revision, Component(component))
        chosen = {
            DEPLOYMENT_LABEL: labels[DEPLOYMENT_LABEL],
            COMPONENT_LABEL: component,
            REVISION_LABEL: revision,
        }
        found.append(
            TargetState(
                identity=Identity.of(body),
                component=component,
                replicas=(body.get("spec") or {}).get("replicas"),
                status=body.get("status") or {},
                wanted_status={
                    "replicas": view.total if view else 0,
                    "selector": ",".join(f"{k}={v}" for k, v in chosen.items()),
                },
            )
        )
    return tuple(found)


def role_pods(
    observed: Observed, revision: str, component: Component, replicas: int, now: datetime
) -> RolePods:
    """Pods of one role in a revision, without those that are going or have ended.

    An engine on several nodes is pending as long as one of its pods is.
    """
    pods = _here(observed.pods_of(revision, component))
    pending = [pod for pod in _here(observed.members_of(revision, component)) if not pod.has_run]
    waiting = {pod.group or pod.name for pod in pending}

    def unchanged(pod: PodView) -> float:
        return (now - pod.ready_changed).total_seconds()

    return RolePods(
        replicas=replicas,
        ready_seconds={pod.name: unchanged(pod) for pod in pods if pod.ready},
        placed=sum((pod.group or pod.name) not in waiting for pod in pods),
        pending_seconds=max(map(unchanged, pending), default=0.0),
    )


def _here(pods: Iterable[PodView]) -> list[PodView]:
    return [pod for pod in pods if not pod.terminating and not pod.finished]


def scaling_condition(decision: ScalingDecision) -> Draft:
    """Words change only when there is something else to do about it. The reason is that of the
    first notice; the message has all of them."""
    if decision.held is not None:
        held = decision.held
        return Draft(SCALING_ACTIVE, "False", held.reason, held.message, alarming=held.alarming)
    if decision.notices:
        first, *others = decision.notices
        told = [first.message, *(f"{notice.reason}: {notice.message}" for notice in others)]
        return Draft(SCALING_ACTIVE, "True", first.reason, ". ".join(told), alarming=True)
    return Draft(SCALING_ACTIVE, "True", "Deciding", "replicas follow the load")


def unmeasured_condition(signals: NoSignals) -> Draft:
    """Without Prometheus nothing is decided."""
    return Draft(
        SCALING_ACTIVE,
        "False",
        signals.reason,
        f"{signals.message}; replicas stay as they are",
        alarming=True,
    )


def external_condition() -> Draft:
    return Draft(
        SCALING_ACTIVE,
        "Unknown",
        "ExternalOwner",
        "replicas are those of the OasisRoles, which an external autoscaler sets",
    )


def replicas_decided(decision: ScalingDecision) -> Replicas:
    return {component: role.replicas for component, role in _roles(decision)}


def changes(decision: ScalingDecision, before: Replicas) -> tuple[Change, ...]:
    """The roles whose number of pods is another now."""
    return tuple(
        Change(
            component,
            role.reason,
            Decision(
                "Autoscaled",
                f"{component} from {before[component]} to {role.replicas} pods ({role.reason}): "
                f"{role.message}",
            ),
        )
        for component, role in _roles(decision)
        if role.replicas != before[component]
    )


def _roles(decision: ScalingDecision) -> Iterator[tuple[Component, RoleDecision]]:
    if decision.prefill is not None:
        yield Component.PREFILL, decision.prefill
    yield Component.DECODE, decision.decode
