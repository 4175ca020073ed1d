"""Just enough of a cluster to carry out updates: pods that start, get ready, crash and end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from oasis_operator.desired.limits import Limits
from oasis_operator.desired.metadata import Component
from oasis_operator.desired.revision_state import Goal, RevisionState, RolePods
from oasis_operator.desired.rollout import Rollout, decide_rollout

PREFILL, DECODE = Component.PREFILL, Component.DECODE


@dataclass
class Deployment:
    """Pods of one role (or the routers) of one revision."""

    wanted: int
    starting: int = 0
    ready: int = 0
    complete: bool = False

    def scale(self, wanted: int) -> int:
        """As its controller does: pods that are not ready go first. How many began to end."""
        self.wanted = wanted
        gone = 0
        while self.starting + self.ready > wanted:
            if self.starting:
                self.starting -= 1
            else:
                self.ready -= 1
            gone += 1
        self.starting += max(0, wanted - self.starting - self.ready)
        return gone


@dataclass
class World:
    """Engines, routers and the Service of one OasisDeployment."""

    limits: Limits
    engines: dict[tuple[str, Component], Deployment] = field(default_factory=dict)
    routers: dict[str, Deployment] = field(default_factory=dict)
    ending: dict[tuple[str, Component], int] = field(default_factory=dict)
    ending_routers: dict[str, int] = field(default_factory=dict)
    selected: str | None = None
    established: set[str] = field(default_factory=set)

    def copy(self) -> World:
        return World(
            self.limits,
            {key: replace(found) for key, found in self.engines.items()},
            {key: replace(found) for key, found in self.routers.items()},
            dict(self.ending),
            dict(self.ending_routers),
            self.selected,
            set(self.established),
        )

    def states(self) -> dict[str, RevisionState]:
        names = {r for r, _ in (*self.engines, *self.ending)} | {
            *self.routers,
            *self.ending_routers,
        }
        return {name: self._state(name) for name in sorted(names)}

    def _state(self, name: str) -> RevisionState:
        roles = {}
        for role in (PREFILL, DECODE):
            found = self.engines.get((name, role))
            leaving = self.ending.get((name, role), 0)
            if found or leaving:
                here = found or Deployment(0)
                held = here.starting + here.ready + leaving
                roles[role] = RolePods(here.wanted, held, leaving, here.ready)
        router = self.routers.get(name) or Deployment(0)
        return RevisionState(
            roles,
            name in self.established,
            router.starting + router.ready + self.ending_routers.get(name, 0),
            router.ready,
        )

    def decide(self, goal: Goal) -> Rollout:
        return decide_rollout(goal, self.selected, self.states(), self.limits)

    def carry_out(self, goal: Goal, plan: Rollout) -> None:
        """In the operator's order: what is wanted is applied, then what is not is deleted."""
        self.selected = plan.serving
        for role, count in plan.resized.items():
            self._scale((plan.serving, role), count)
        for role, count in (plan.replicas or {}).items():
            self._scale((plan.target, role), count)
        if plan.replicas is not None:
            self.routers.setdefault(plan.target, Deployment(0)).scale(goal.routers)
        for name in [r for r in self.routers if r != plan.target and r not in plan.routed]:
            self._end_router(name)
        wanted = {(plan.target, role) for role in plan.replicas or {}}
        for key in [k for k in self.engines if k not in wanted and k[0] not in plan.kept]:
            self._scale(key, 0)
            del self.engines[key]

    def _scale(self, key: tuple[str, Component], wanted: int) -> None:
        gone = self.engines.setdefault(key, Deployment(0)).scale(wanted)
        if gone:
            self.ending[key] = self.ending.get(key, 0) + gone

    def _end_router(self, name: str) -> None:
        gone = self.routers.pop(name).scale(0)
        if gone:
            self.ending_routers[name] = self.ending_routers.get(name, 0) + gone

    # What happens by itself.

    def get_ready(self, key: tuple[str, Component]) -> None:
        found = self.engines[key]
        if found.starting:
            found.starting, found.ready = found.starting - 1, found.ready + 1
        found.complete = found.complete or (found.wanted > 0 and found.ready == found.wanted)
        roles = [pods for (name, _), pods in self.engines.items() if name == key[0]]
        if all(pods.complete for pods in roles):
            self.established.add(key[0])

    def crash(self, key: tuple[str, Component]) -> None:
        found = self.engines[key]
        if found.ready:
            found.starting, found.ready = found.starting + 1, found.ready - 1

    def end_pod(self, key: tuple[str, Component]) -> None:
        self.ending[key] -= 1
        if not self.ending[key]:
            del self.ending[key]

    def route(self, name: str) -> None:
        """A router pod gets ready, which takes a ready engine of each role."""
        found = self.routers[name]
        if found.starting and self._state(name).can_serve:
            found.starting, found.ready = found.starting - 1, found.ready + 1

    def end_router_pod(self, name: str) -> None:
        self.ending_routers[name] -= 1
        if not self.ending_routers[name]:
            del self.ending_routers[name]

    def events(self) -> Iterator[tuple[str, object]]:
        """What could happen now, without crashes."""
        yield from (("get_ready", k) for k, pods in self.engines.items() if pods.starting)
        yield from (("end_pod", k) for k in self.ending)
        yield from (
            ("route", r)
            for r, pods in self.routers.items()
            if pods.starting and self._state(r).can_serve
        )
        yield from (("end_router_pod", r) for r in self.ending_routers)

    def happen(self, event: tuple[str, object]) -> None:
        getattr(self, event[0])(event[1])

    # What a client or an accountant would see.

    def capacity(self) -> dict[Component, int]:
        """Ready engines that clients can reach, by role; none without a ready router."""
        if self.selected is None or not self._state(self.selected).ready_routers:
            return {}
        state = self._state(self.selected)
        return {role: pods.ready for role, pods in state.roles.items()}

    def pods(self, role: Component) -> int:
        """All pods of a role, the ones that are ending too."""
        here = (d.starting + d.ready for (_, r), d in self.engines.items() if r == role)
        return sum(here) + sum(n for (_, r), n in self.ending.items() if r == role)
