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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from oasis_operator.desired.limits import Limits
from oasis_operator.desired.revision_state import Counts, Goal, RevisionState
from oasis_operator.desired.room import Room, needed, shares


@dataclass(frozen=True)
class Rollout:
    """What should be next.

    Attributes:
        target: revision that the spec asks for.
        serving: revision whose routers the Service selects.
        replicas: engines of the target by role; ``None`` while there is no room for any.
        resized: replicas of the serving revision where they are to be others: it gives up some for
            the target, or follows the load.
        kept: other revisions whose engines stay.
        routed: those of them whose routers stay.
        blocked: the sentence that says why the target cannot get the room that it needs, or
            nothing.
    """

    target: str
    serving: str
    replicas: Counts | None
    resized: Counts = field(default_factory=dict)
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
    if old is None or _can_take_over(goal, states.get(goal.revision), states[old], limits):
        return _arrived(goal, states, limits)
    serving = states[old]
    found = next(shares(goal, serving, limits), None)
    if found is None:
        return _blocked(goal, old, states, limits)
    # The target's pods are made as those of the old go, and the old grows only beside them.
    target = states.get(goal.revision)
    coming = {role: pods.wanted for role, pods in target.roles.items()} if target else {}
    staying = Room(goal, old, states, limits, {goal.revision: coming}).fill(found.old, found.old)
    room = Room(goal, goal.revision, states, limits, {old: staying})
    return Rollout(
        target=goal.revision,
        serving=old,
        replicas=_whole(room, room.fill(goal.replicas, found.new)),
        resized={r: n for r, n in staying.items() if n != serving.roles[r].wanted},
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
    room = Room(goal, goal.revision, states, limits)
    return Rollout(
        target=goal.revision,
        serving=goal.revision,
        replicas=_whole(room, room.fill(goal.replicas, goal.replicas)),
        kept=_draining(states, {goal.revision}),
    )


def _blocked(goal: Goal, old: str, states: Mapping[str, RevisionState], limits: Limits) -> Rollout:
    """The old revision serves as it does: no pod of it goes for a target that cannot come. What
    there is of the target stays, and waits for another size or another spec."""
    room = Room(goal, goal.revision, states, limits)
    return Rollout(
        target=goal.revision,
        serving=old,
        replicas=_whole(room, room.fill(goal.replicas, dict.fromkeys(goal.replicas, 0))),
        kept=frozenset({old}) | _draining(states, {goal.revision, old}),
        routed=frozenset({old}),
        blocked=_why_blocked(goal, states[old], limits),
    )


def _whole(room: Room, replicas: Counts) -> Counts | None:
    """``None`` rather than a part of the roles: a Deployment is made once it can have a pod."""
    if room.empty and not all(replicas.values()):
        return None
    return {role: count for role, count in replicas.items() if count}


def _draining(states: Mapping[str, RevisionState], others: Iterable[str]) -> frozenset[str]:
    """Revisions whose routers may still have streams to finish."""
    left = states.keys() - others
    return frozenset(r for r in left if states[r].routers and states[r].worth_keeping)


def _can_take_over(
    goal: Goal, target: RevisionState | None, serving: RevisionState, limits: Limits
) -> bool:
    """Whether clients lose nothing by the switch: engines that are needed, and as many routers
    as there are now."""
    if target is None:
        return False
    routers = max(1, min(goal.routers, serving.ready_routers))
    return target.ready_routers >= routers and all(
        role in target.roles and target.roles[role].ready >= needed(goal, role, serving, limits)
        for role in goal.replicas
    )


def _why_blocked(goal: Goal, serving: RevisionState, limits: Limits) -> str:
    needs = {role: needed(goal, role, serving, limits) for role in goal.replicas}
    told = " and ".join(f"{count} {role}" for role, count in needs.items())
    if limits.budget is not None:
        return (
            f"{told} pods of the new revision do not fit into {limits.budget} GPUs beside the "
            "pods that must keep serving: raise spec.updates.maxUnavailable or "
            "spec.autoscaling.gpuBudget"
        )
    return (
        f"{told} pods of the new revision must be ready before it can take over, and do not fit "
        "beside the pods that must keep serving: raise spec.updates.maxSurge or "
        "spec.updates.maxUnavailable"
    )
