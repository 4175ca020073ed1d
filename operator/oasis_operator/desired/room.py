"""The room of an update: how two revisions divide it, and what of it is free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from oasis_operator.desired.limits import Limits
from oasis_operator.desired.metadata import Component
from oasis_operator.desired.revision_state import Counts, Goal, RevisionState


@dataclass(frozen=True)
class Shares:
    """Pods of the serving revision and of the target, side by side."""

    old: Counts
    new: Counts


def shares(goal: Goal, serving: RevisionState, limits: Limits) -> Iterator[Shares]:
    """Legal divisions of the room, best first: all of the target beside all of the old; else the
    old gives up pods; else the target makes do with what it needs to take over."""
    roles = goal.replicas.keys() | serving.roles.keys()
    sizes = {role: _size(goal, role, serving) for role in serving.roles}
    floors = {role: min(_floor(goal, role, serving, limits), sizes.get(role, 0)) for role in roles}
    least = {role: needed(goal, role, serving, limits) for role in goal.replicas}

    def beside(new: Counts) -> dict[Component, int]:
        return {
            role: max(floors[role], min(size, limits.ceiling(goal.replicas[role]) - new[role]))
            if role in goal.replicas
            else size
            for role, size in sizes.items()
        }

    for new in (goal.replicas, least):
        for old in (beside(new), {role: floors[role] for role in serving.roles}):
            both = {role: old.get(role, 0) + new.get(role, 0) for role in roles}
            if limits.fits(both) and all(
                both[role] <= limits.ceiling(size) for role, size in goal.replicas.items()
            ):
                yield Shares(old, new)


def needed(goal: Goal, role: Component, serving: RevisionState, limits: Limits) -> int:
    """Ready pods of the target's role with which it may take over."""
    if not serving.can_serve:
        return 1  # Anything is more than nothing.
    return max(1, limits.floor(goal.replicas[role]))


def _size(goal: Goal, role: Component, serving: RevisionState) -> int:
    """What the serving revision is to have, if there is room."""
    wanted = serving.roles[role].wanted
    return goal.replicas.get(role, wanted) if goal.elastic else wanted


def _floor(goal: Goal, role: Component, serving: RevisionState, limits: Limits) -> int:
    """Fewest pods of a role that have to serve; a role that the goal has not is as large as it
    is now."""
    size = goal.replicas.get(role)
    return limits.floor(serving.roles[role].wanted if size is None else size)


class Room:
    """The places that are free for the pods of one revision."""

    def __init__(
        self,
        goal: Goal,
        revision: str,
        states: Mapping[str, RevisionState],
        limits: Limits,
        promised: Mapping[str, Counts] | None = None,
    ) -> None:
        """``promised``: pods of other revisions that are about to be made."""
        self._goal = goal
        self._limits = limits
        own = states.get(revision)
        self._own = own.roles if own else {}
        others = {name: state for name, state in states.items() if name != revision}
        self._taken = _taken(others, promised or {})

    def fill(self, size: Counts, share: Counts) -> dict[Component, int]:
        """Replicas by role: what there is, at most ``size``, and more of it up to ``share`` as long
        as that fits. One pod at a time, for the role that lacks most."""
        found = {
            role: min(count, own.wanted if (own := self._own.get(role)) else 0)
            for role, count in size.items()
        }
        while (role := self._next(found, share)) is not None:
            found[role] += 1
        return found

    @property
    def empty(self) -> bool:
        """The revision has no pods and is to have none."""
        return not any(pods.wanted for pods in self._own.values())

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
        size = self._goal.replicas.get(role)
        return (
            size is not None
            and places[role] <= self._limits.ceiling(size)
            and self._limits.fits(places)
        )

    def _places(self, role: Component, count: int) -> int:
        """Of the revision itself: a pod that is ending keeps its place until it is gone."""
        own = self._own.get(role)
        return count if own is None else max(own.held, count + own.leaving)


def _taken(
    others: Mapping[str, RevisionState], promised: Mapping[str, Counts]
) -> dict[Component, int]:
    """Places of the pods of other revisions, those among them that are about to be made too."""
    taken: dict[Component, int] = {}
    for revision, state in others.items():
        for role, pods in state.roles.items():
            count = max(pods.held, promised.get(revision, {}).get(role, 0) + pods.leaving)
            taken[role] = taken.get(role, 0) + count
    return taken
