"""What an update starts from and where it goes: the revisions that there are, and the goal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.desired.metadata import Component
from oasis_operator.desired.roles import role_plans

Counts = Mapping[Component, int]
"""Pods by role."""


@dataclass(frozen=True)
class RolePods:
    """Pods of one role in one revision.

    ``wanted``: what its Deployment asks for. ``held``: pods that take a place, those that are
    ending too. ``leaving``: of these, the ones that are ending. ``ready``: ready and staying.
    """

    wanted: int
    held: int
    leaving: int
    ready: int


@dataclass(frozen=True)
class RevisionState:
    """The engines and routers of one revision, as they are."""

    roles: Mapping[Component, RolePods]
    established: bool
    """Every role was complete at least once."""
    routers: int = 0
    """Router pods that may still send it requests, those that are ending too."""
    ready_routers: int = 0

    @property
    def can_serve(self) -> bool:
        """Whether each role has a ready pod."""
        return bool(self.roles) and all(pods.ready > 0 for pods in self.roles.values())

    @property
    def worth_keeping(self) -> bool:
        """Not so a revision that has never worked: a corrected spec replaces it at once."""
        return self.established or self.can_serve


@dataclass(frozen=True)
class Goal:
    """What the spec asks for."""

    revision: str
    replicas: Counts
    routers: int = 1
    elastic: bool = False
    """The replicas follow the load, so the revision that serves has to follow them meanwhile."""


def goal_of(od: OasisDeployment, revision: str) -> Goal:
    """The size that the spec of ``revision`` names."""
    replicas = {role.component: role.spec.replicas for role in role_plans(od)}
    scaled = od.spec.autoscaling is not None
    return Goal(revision, replicas, od.spec.router.replicas, elastic=scaled)
