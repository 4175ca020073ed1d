"""The status of an OasisDeployment, from everything that was judged. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, cast

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.api.status import PlacementStatus, RolePlacement, RoleStatus, Status
from oasis_operator.desired.metadata import Component
from oasis_operator.desired.model import model_source, sources
from oasis_operator.desired.placement import Placements
from oasis_operator.desired.roles import RolePlan, role_plans
from oasis_operator.desired.rollout import Rollout
from oasis_operator.desired.service import endpoint
from oasis_operator.desired.spec_names import own_fields
from oasis_operator.desired.workload import LEADER_WORKER_SET_API
from oasis_operator.reconcile.conditions import NUMA_ALIGNED, READY, Draft, with_transitions
from oasis_operator.reconcile.observed import DeploymentView, Observed
from oasis_operator.reconcile.pause import with_pause
from oasis_operator.reconcile.placement_condition import numa_with_placement, with_placement
from oasis_operator.reconcile.ready_condition import ready_condition, router_condition
from oasis_operator.reconcile.role_condition import role_condition
from oasis_operator.reconcile.rollout_condition import router_with_rollout, with_rollout
from oasis_operator.reconcile.serving import served_by, serves_as_before
from oasis_operator.reconcile.signal_conditions import hit_rate, serving_mode, signal_conditions
from oasis_operator.signals.prometheus import NoSignals, Signals

GROUPS_NOT_SERVED = "LeaderWorkerSetNotServed"


def judge(
    od: OasisDeployment,
    rollout: Rollout,
    observed: Observed,
    signals: Signals | NoSignals,
    warnings: Mapping[str, str],
    placements: Placements,
    before: Status,
    now: datetime,
) -> list[Draft]:
    """All conditions, the summary first."""
    parts = [
        _role_condition(od, plan, rollout, observed, warnings, placements, now)
        for plan in role_plans(od)
    ]
    router = router_condition(
        observed.workload(rollout.target, Component.ROUTER),
        observed.pods_of(rollout.target, Component.ROUTER),
    )
    parts.append(router_with_rollout(router, rollout, served_by(rollout, observed)))
    components = [*(plan.component for plan in role_plans(od)), Component.ROUTER]
    as_before = serves_as_before(before, rollout, observed, components)
    measured = [
        numa_with_placement(draft, placements) if draft.type == NUMA_ALIGNED else draft
        for draft in signal_conditions(od, signals)
    ]
    return [ready_condition(parts, as_before), *parts, *measured]


def _role_condition(
    od: OasisDeployment,
    plan: RolePlan,
    rollout: Rollout,
    observed: Observed,
    warnings: Mapping[str, str],
    placements: Placements,
    now: datetime,
) -> Draft:
    component, revision = plan.component, rollout.target
    draft = role_condition(
        component,
        observed.workload(revision, component),
        observed.members_of(revision, component),
        warnings,
        sources(od.spec),
        now - timedelta(seconds=od.spec.updates.progress_deadline_seconds),
        own_fields(plan),
    )
    draft = with_rollout(draft, component, rollout, plan.spec.replicas)
    draft = with_pause(draft, component, revision, observed, now)
    return with_placement(draft, placements[component])


def no_groups(od: OasisDeployment) -> list[Draft]:
    """The conditions in a cluster that cannot make engines on several nodes."""
    return failed(
        GROUPS_NOT_SERVED,
        f"spec.engine.nodes is {od.spec.engine.nodes}, and the cluster does not serve "
        f"{LEADER_WORKER_SET_API}: install LeaderWorkerSet, or set spec.engine.nodes to 1",
    )


def failed(reason: str, message: str) -> list[Draft]:
    """The conditions of a spec that could not be carried out at all."""
    return [Draft(READY, "False", reason, message, alarming=True)]


def status_of(
    od: OasisDeployment,
    rollout: Rollout,
    observed: Observed,
    signals: Signals | NoSignals,
    drafts: list[Draft],
    placements: Placements,
    before: Status,
    now: str,
) -> Status:
    """Rates that cannot be measured now stay as they were measured last of the same revision."""
    served = served_by(rollout, observed)
    same = served is not None and served == before.serving_revision
    mode = serving_mode(signals) or (before.mode if same else None)
    spec = od.spec
    return Status(
        observed_generation=od.generation,
        revision=rollout.target,
        serving_revision=served,
        model=model_source(spec).short,
        prefill=_role(observed.workload(rollout.target, Component.PREFILL), spec.prefill.replicas)
        if spec.prefill
        else None,
        decode=_role(observed.workload(rollout.target, Component.DECODE), spec.decode.replicas),
        router=_role(observed.workload(rollout.serving, Component.ROUTER), spec.router.replicas),
        mode=cast(Literal["sparse", "dense"] | None, mode),
        hit_rate=hit_rate(signals) or (before.hit_rate if same else None),
        endpoint=endpoint(od),
        placement=_placement(placements),
        conditions=with_transitions(drafts, before.conditions or [], now, od.generation),
    )


def failed_status(before: Status, drafts: list[Draft], now: str, generation: int) -> Status:
    """As before, but for what failed: the other conditions may still be true."""
    told = {draft.type for draft in drafts}
    others = [item for item in before.conditions or [] if item.type not in told]
    changed = with_transitions(drafts, before.conditions or [], now, generation)
    return before.model_copy(
        update={"observed_generation": generation, "conditions": [*changed, *others]}
    )


def status_body(status: Status) -> dict[str, Any]:
    """As the API server stores it."""
    return status.model_dump(by_alias=True, exclude_none=True, mode="json")


def _placement(placements: Placements) -> PlacementStatus:
    told = {
        component.value: RolePlacement(mode=placement.mode, why=placement.why)
        for component, placement in placements.items()
    }
    return PlacementStatus(**told)


def _role(view: DeploymentView | None, asked: int) -> RoleStatus:
    """Before its Deployment is there, a role wants what the spec asks for."""
    total, ready = (view.total, view.ready) if view else (0, 0)
    wanted = view.wanted if view else asked
    return RoleStatus(
        replicas=total,
        ready_replicas=ready,
        desired_replicas=wanted,
        ready=f"{ready}/{wanted}",
    )


def same_status(one: Status, other: Status) -> bool:
    """Whether there is nothing to write; the order of conditions says nothing."""
    return _comparable(one) == _comparable(other)


def _comparable(status: Status) -> dict[str, Any]:
    body = status_body(status)
    return body | {"conditions": {item["type"]: item for item in body.get("conditions") or []}}
