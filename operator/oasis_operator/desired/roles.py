"""The engine roles of an OasisDeployment."""

from __future__ import annotations

from dataclasses import dataclass

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.api.spec import Role
from oasis_operator.desired.metadata import Component
from oasis_runtime.contract import Role as EngineRole


@dataclass(frozen=True)
class RolePlan:
    """One section of the spec and what its engines do."""

    component: Component
    engine: EngineRole
    spec: Role


def role_plans(od: OasisDeployment) -> tuple[RolePlan, ...]:
    """Without a prefill section the decode pods serve a request from prompt to end."""
    if od.spec.prefill is None:
        return (RolePlan(Component.DECODE, EngineRole.BOTH, od.spec.decode),)
    return (
        RolePlan(Component.PREFILL, EngineRole.PREFILL, od.spec.prefill),
        RolePlan(Component.DECODE, EngineRole.DECODE, od.spec.decode),
    )


def gpus_of(role: Role, nodes: int) -> int:
    """What one engine takes from a budget of GPUs; a pod without any counts as one.

    Args:
        role: what each of its pods has.
        nodes: its pods.
    """
    return nodes * (role.devices.gpu.count if role.devices and role.devices.gpu else 1)


def is_disaggregated(od: OasisDeployment) -> bool:
    """Whether prefill and decode run in pods of their own."""
    return od.spec.prefill is not None
