"""``spec.autoscaling`` as a decision obeys it, and its outcome as a spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from oasis_operator.api.autoscaling import Autoscaling, RoleScaling
from oasis_operator.api.resource import OasisDeployment
from oasis_operator.api.spec import Role
from oasis_operator.autoscaling.allocation import Pair, allocate
from oasis_operator.autoscaling.policy import Behaviour, Bounds, ScalingSpec, Slo
from oasis_operator.desired.metadata import Component
from oasis_operator.desired.roles import gpus_of, role_plans

Replicas = Mapping[Component, int]
"""Pods of each role that there is."""


def scaling_spec(od: OasisDeployment, scaling: Autoscaling) -> ScalingSpec:
    """What to obey.

    Raises:
        ValueError: a role has no bounds; the CRD's rules refuse such a spec.
    """
    ratio = scaling.ratio
    return ScalingSpec(
        decode=_bounds(od, od.spec.decode, scaling.decode),
        prefill=_bounds(od, od.spec.prefill, scaling.prefill) if od.spec.prefill else None,
        slo=Slo(scaling.slo.ttft_milliseconds / 1000, scaling.slo.tpot_milliseconds / 1000),
        requests_per_decode_pod=od.spec.engine.max_num_seqs,
        gpu_budget=scaling.gpu_budget,
        least_ratio=_fraction(ratio.min) if ratio and ratio.min else Fraction(0),
        most_ratio=_fraction(ratio.max) if ratio and ratio.max else None,
        behaviour=Behaviour(
            down_seconds=scaling.scale_down_seconds,
            warm_up_seconds=scaling.warm_up_seconds,
            pending_seconds=scaling.pending_seconds,
        ),
    )


def replicas_of(od: OasisDeployment) -> Replicas:
    """As the spec says."""
    return {plan.component: plan.spec.replicas for plan in role_plans(od)}


def with_replicas(od: OasisDeployment, replicas: Replicas) -> OasisDeployment:
    """As if the user had written these numbers; a role that is new keeps what was written."""
    roles = {
        plan.component.value: plan.spec.model_copy(
            update={"replicas": replicas.get(plan.component, plan.spec.replicas)}
        )
        for plan in role_plans(od)
    }
    return replace(od, spec=od.spec.model_copy(update=roles))


def within_bounds(replicas: Replicas, spec: ScalingSpec) -> Replicas:
    """The nearest numbers that the spec allows; the same where it allows none."""
    pair = Pair(replicas.get(Component.PREFILL, 0), replicas[Component.DECODE])
    fitted = allocate(pair, pair, spec) or pair
    found = {Component.PREFILL: fitted.prefill, Component.DECODE: fitted.decode}
    return {component: found[component] for component in replicas}


def _bounds(od: OasisDeployment, role: Role, scaling: RoleScaling | None) -> Bounds:
    if scaling is None:
        raise ValueError("spec.autoscaling has no bounds for a role of the spec")
    gpus = gpus_of(role, od.spec.engine.nodes)
    return Bounds(scaling.min_replicas, scaling.max_replicas, gpus)


def _fraction(share: str) -> Fraction:
    prefill, _, decode = share.partition(":")
    return Fraction(int(prefill), int(decode))
