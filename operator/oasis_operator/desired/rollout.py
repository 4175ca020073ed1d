"""The planner of updates: what is, and what is asked for -> what should be next. Pure.

Prefill and decode pods of different revisions must never talk to each other, so a new revision
is a new set of engines with a router of its own, and the Service in front is the switch: it
selects the routers of one revision. Everything that this decides on can be read from the
cluster, nothing is remembered, so that an update may change its goal or its direction, and the
operator may restart, at any point.

The order of an update from S to T:

1. S gives up pods, down to its floor, where T would not fit beside it; T gets what fits.
2. T can do what S must at least do: the Service switches.
3. The routers of S end, each after its last stream. S has no more requests then.
4. The engines of S end; T gets the rest of its pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.desired.limits import Limits
from oasis_operator.desired.metadata import Component
from oasis_operator.desired.roles import role_plans

Counts = Mapping[Component, int]


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


def goal_of(od: OasisDeployment, revision: str) -> Goal:
    """The size that the spec of ``revision`` names."""
    replicas = {role.component: role.spec.replicas for role in role_plans(od)}
    return Goal(revision, replicas, od.spec.router.replicas)


@dataclass(frozen=True)
class Rollout:
    """What should be next.

    Attributes:
        target: revision that the spec asks for.
        serving: revision whose routers the Service selects.
        replicas: engines of the target by role; ``None`` while there is no room for any.
        shrunk: replicas of the serving revision where it gives up some for the target.
        kept: other revisions whose engines stay.
        routed: those of them whose routers stay.
        blocked: the sentence that says why the target cannot get the room that it needs, or
            nothing.
    """

    target: str
    serving: str
    replicas: Counts | None
    shrunk: Counts = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    routed: frozenset[str] = frozenset()
    blocked: str = ""

    @property
    def done(self) -> bool:
        """Nothing of another revision is left."""
        return self.serving == self.target and not self.kept


def decide_rollout(
    goal: Goal, selected: str | None, states: Mapping[str, RevisionState], limits: Limits
) -> Rollout:
    """One step towards ``goal``.

    Args:
        goal: the revision to reach and its size.
        selected: revision that the Service selects; ``None`` if there is no Service.
        states: every revision that has engines or routers.
        limits: how many pods there may and must be.
    """
    old = _serving(goal, selected, states)
    if old is None:
        return _arrived(goal, states, limits)
    serving = states[old]
    shares = next(_shares(goal, serving, limits), None)
    if shares is None:
        return _blocked(goal, old, states, limits)
    if _can_take_over(goal, states.get(goal.revision), serving, limits):
        return _arrived(goal, states, limits)
    staying = {role: min(shares.old.get(role, 0), p.wanted) for role, p in serving.roles.items()}
    room = _Room(goal, states, limits, {old: staying})
    return Rollout(
        target=goal.revision,
        serving=old,
        replicas=room.fill(shares.new),
        shrunk={r: n for r, n in staying.items() if n < serving.roles[r].wanted},
        kept=frozenset({old}) | _draining(states, {goal.revision, old}),
        routed=frozenset({old}),
    )


def _serving(goal: Goal, selected: str | None, states: Mapping[str, RevisionState]) -> str | None:
    """The revision other than the goal's that has to serve for now, if any."""
    if selected is None:
        # Somebody deleted the Service: what can serve goes on serving.
        able = [r for r, state in states.items() if state.can_serve and state.ready_routers]
        selected = min(able, key=lambda r: (r != goal.revision, r), default=None)
    if selected is None or selected == goal.revision:
        return None
    state = states.get(selected)
    return selected if state is not None and state.worth_keeping else None


def _arrived(goal: Goal, states: Mapping[str, RevisionState], limits: Limits) -> Rollout:
    """The target serves; it gets its pods as the places of others become free."""
    room = _Room(goal, states, limits)
    return Rollout(
        target=goal.revision,
        serving=goal.revision,
        replicas=room.fill(goal.replicas),
        kept=_draining(states, {goal.revision}),
    )


def _blocked(goal: Goal, old: str, states: Mapping[str, RevisionState], limits: Limits) -> Rollout:
    """The old revision serves as it does: no pod of it goes for a target that cannot come. What
    there is of the target stays, and waits for another size or another spec."""
    return Rollout(
        target=goal.revision,
        serving=old,
        replicas=_Room(goal, states, limits).fill(dict.fromkeys(goal.replicas, 0)),
        kept=frozenset({old}) | _draining(states, {goal.revision, old}),
        routed=frozenset({old}),
        blocked=_why_blocked(goal, states[old], limits),
    )


def _draining(states: Mapping[str, RevisionState], others: Iterable[str]) -> frozenset[str]:
    """Revisions whose routers may still have streams to finish."""
    left = states.keys() - others
    return frozenset(r for r in left if states[r].routers and states[r].worth_keeping)


@dataclass(frozen=True)
class _Shares:
    """Pods of the serving revision and of the target, side by side."""

    old: Counts
    new: Counts


def _shares(goal: Goal, serving: RevisionState, limits: Limits) -> Iterator[_Shares]:
    """Legal divisions of the room, best first: all of the target beside all of the old; else the
    old gives up pods; else the target makes do with what it needs to take over."""
    roles = goal.replicas.keys() | serving.roles.keys()
    wanted = {role: pods.wanted for role, pods in serving.roles.items()}
    floors = {role: min(_floor(goal, role, serving, limits), wanted.get(role, 0)) for role in roles}
    least = {role: _needed(goal, role, serving, limits) for role in goal.replicas}

    def beside(new: Counts) -> dict[Component, int]:
        return {
            role: max(
                floors[role],
                min(wanted.get(role, 0), _ceiling(goal, role, serving, limits) - new.get(role, 0)),
            )
            for role in serving.roles
        }

    for new in (goal.replicas, least):
        for old in (beside(new), {role: floors[role] for role in serving.roles}):
            both = {role: old.get(role, 0) + new.get(role, 0) for role in roles}
            if limits.fits(both) and all(
                both[role] <= _ceiling(goal, role, serving, limits) for role in goal.replicas
            ):
                yield _Shares(old, new)


def _floor(goal: Goal, role: Component, serving: RevisionState, limits: Limits) -> int:
    """Fewest pods of a role that have to serve; a role that the goal has not is as large as it
    is now."""
    size = goal.replicas.get(role)
    return limits.floor(serving.roles[role].wanted if size is None else size)


def _ceiling(goal: Goal, role: Component, serving: RevisionState, limits: Limits) -> int:
    size = goal.replicas.get(role)
    return serving.roles[role].wanted if size is None else limits.ceiling(size)


def _needed(goal: Goal, role: Component, serving: RevisionState, limits: Limits) -> int:
    """Ready pods of the target's role with which it may take over."""
    if not serving.can_serve:
        return 1  # Anything is more than nothing.
    return max(1, limits.floor(goal.replicas[role]))


def _can_take_over(
    goal: Goal, target: RevisionState | None, serving: RevisionState, limits: Limits
) -> bool:
    """Whether clients lose nothing by the switch: engines that are needed, and as many routers
    as there are now."""
    if target is None:
        return False
    routers = max(1, min(goal.routers, serving.ready_routers))
    return target.ready_routers >= routers and all(
        role in target.roles and target.roles[role].ready >= _needed(goal, role, serving, limits)
        for role in goal.replicas
    )


def _why_blocked(goal: Goal, serving: RevisionState, limits: Limits) -> str:
    needs = {role: _needed(goal, role, serving, limits) for role in goal.replicas}
    told = " and ".join(f"{count} {role}" for role, count in needs.items())
    if limits.budget is not None:
        return (
            f"{told} pods of the new revision do not fit into {limits.budget} devices beside the "
            "pods that must keep serving: raise spec.updates.maxUnavailable, or the budget"
        )
    return (
        f"{told} pods of the new revision must be ready before it can take over, and do not fit "
        "beside the pods that must keep serving: raise spec.updates.maxSurge or "
        "spec.updates.maxUnavailable"
    )


class _Room:
    """The places that are left for the target's pods."""

    def __init__(
        self,
        goal: Goal,
        states: Mapping[str, RevisionState],
        limits: Limits,
        staying: Mapping[str, Counts] | None = None,
    ) -> None:
        self._goal = goal
        self._limits = limits
        target = states.get(goal.revision)
        self._own = target.roles if target else {}
        self._taken = _taken_by_others(goal, states, staying or {})

    def fill(self, share: Counts) -> Counts | None:
        """Replicas of the target by role: what it has, and more of it as long as that fits.

        One pod at a time, for the role that lacks most. ``None`` rather than a part of the roles:
        a Deployment is made once it can have a pod.
        """
        has = {role: pods.wanted for role, pods in self._own.items()}
        found = {role: min(size, has.get(role, 0)) for role, size in self._goal.replicas.items()}
        while (role := self._next(found, share)) is not None:
            found[role] += 1
        if not all(found.values()) and not any(has.values()):
            return None
        return {role: count for role, count in found.items() if count}

    def _next(self, found: Counts, share: Counts) -> Component | None:
        lacking = [role for role in found if found[role] < share[role]]
        for role in sorted(lacking, key=lambda role: found[role] / share[role]):
            if self._fits({**found, role: found[role] + 1}, role):
                return role
        return None

    def _fits(self, pods: Counts, role: Component) -> bool:
        places = {
            name: self._places(name, pods.get(name, 0)) + self._taken.get(name, 0)
            for name in (*pods, *self._taken)
        }
        ceiling = self._limits.ceiling(self._goal.replicas[role])
        return places[role] <= ceiling and self._limits.fits(places)

    def _places(self, role: Component, count: int) -> int:
        """Of the target itself: a pod that is ending keeps its place until it is gone."""
        own = self._own.get(role)
        return count if own is None else max(own.held, count + own.leaving)


def _taken_by_others(
    goal: Goal, states: Mapping[str, RevisionState], staying: Mapping[str, Counts]
) -> dict[Component, int]:
    """Places of the pods of other revisions, those among them that are about to be made too."""
    taken: dict[Component, int] = {}
    for revision, state in states.items():
        if revision == goal.revision:
            continue
        for role, pods in state.roles.items():
            count = max(pods.held, staying.get(revision, {}).get(role, 0))
            taken[role] = taken.get(role, 0) + count
    return taken
