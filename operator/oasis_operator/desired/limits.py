"""How many pods of two revisions may exist side by side, and how many must keep serving."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.desired.metadata import Component
from oasis_operator.desired.roles import gpus_of, role_plans

Amount = int | str
"""Pods, or a share of a role's replicas as ``"25%"``."""


@dataclass(frozen=True)
class Limits:
    """Bounds of an update. ``budget`` is over all roles, in GPUs; ``None``: no bound."""

    surge: Amount
    """Pods that a role may have beyond its replicas; a share is rounded up."""
    unavailable: Amount
    """Replicas that a role may lack while it is updated; a share is rounded down."""
    devices: Mapping[Component, int] = field(default_factory=dict)
    """GPUs of one engine, by role."""
    budget: int | None = None

    def ceiling(self, replicas: int) -> int:
        """Most pods of a role, those of all revisions together."""
        return replicas + amount_of(self.surge, replicas, up=True)

    def floor(self, replicas: int) -> int:
        """Fewest pods of a role that serve."""
        return max(0, replicas - amount_of(self.unavailable, replicas, up=False))

    def fits(self, pods: Mapping[Component, int]) -> bool:
        """Whether the budget covers so many pods."""
        if self.budget is None:
            return True
        return sum(self.devices.get(role, 0) * count for role, count in pods.items()) <= self.budget


UNBOUNDED = Limits(surge="100%", unavailable=0)
"""Room for both revisions."""


def limits_of(od: OasisDeployment) -> Limits:
    """``Recreate`` is an update without room: no pod more, and none that must serve."""
    updates, scaling = od.spec.updates, od.spec.autoscaling
    recreate = updates.strategy == "Recreate"
    return Limits(
        surge=0 if recreate else updates.max_surge,
        unavailable="100%" if recreate else updates.max_unavailable,
        devices={
            role.component: gpus_of(role.spec, od.spec.engine.nodes) for role in role_plans(od)
        },
        budget=scaling.gpu_budget if scaling else None,
    )


def amount_of(amount: Amount, replicas: int, *, up: bool) -> int:
    """A number of pods from a number or a share."""
    if isinstance(amount, int):
        return amount
    share = int(amount.removesuffix("%")) * replicas / 100
    return math.ceil(share) if up else math.floor(share)
