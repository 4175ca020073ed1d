from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasis_operator.desired.rollout import (
    RevisionState,
    Rollout,
    RouterState,
    Strategy,
    decide_rollout,
)

STARTING = RevisionState(available=False, established=False)
SERVING = RevisionState(available=True, established=True)
SHAKEN = RevisionState(available=False, established=True)


def test_the_first_revision_serves_at_once() -> None:
    assert decide_rollout("a", {}, None, "Switch") == Rollout("a", "a", frozenset())


def test_the_old_revision_serves_until_the_new_one_is_available() -> None:
    states = {"old": SERVING, "new": STARTING}
    found = decide_rollout("new", states, RouterState("old", settled=True), "Switch")
    assert found == Rollout("new", "old", frozenset({"old"}))


def test_the_router_switches_when_the_new_revision_is_available() -> None:
    states = {"old": SERVING, "new": SERVING}
    found = decide_rollout("new", states, RouterState("old", settled=True), "Switch")
    assert found == Rollout("new", "new", frozenset({"old"}))


def test_the_old_revision_stays_until_no_router_pod_uses_it() -> None:
    states = {"old": SERVING, "new": SERVING}
    found = decide_rollout("new", states, RouterState("new", settled=False), "Switch")
    assert found.kept == {"old"}
    found = decide_rollout("new", states, RouterState("new", settled=True), "Switch")
    assert found.kept == frozenset()


def test_a_revision_that_never_worked_is_replaced_at_once() -> None:
    states = {"broken": STARTING, "new": STARTING}
    found = decide_rollout("new", states, RouterState("broken", settled=False), "Switch")
    assert found == Rollout("new", "new", frozenset())


def test_a_revision_that_is_shaken_but_worked_is_kept() -> None:
    states = {"old": SHAKEN, "new": STARTING}
    found = decide_rollout("new", states, RouterState("old", settled=False), "Switch")
    assert found.serving == "old"


def test_a_revision_between_that_nobody_serves_from_goes() -> None:
    states = {"old": SERVING, "abandoned": STARTING, "new": STARTING}
    found = decide_rollout("new", states, RouterState("old", settled=True), "Switch")
    assert found.kept == {"old"}


def test_recreate_makes_room_first() -> None:
    states = {"old": SERVING, "new": STARTING}
    found = decide_rollout("new", states, RouterState("old", settled=True), "Recreate")
    assert found == Rollout("new", "new", frozenset())


@dataclass
class Cluster:
    """Just enough of one to carry out rollouts."""

    revisions: dict[str, RevisionState] = field(default_factory=dict)
    router: RouterState | None = None

    def step(self, target: str, strategy: Strategy) -> Rollout:
        found = decide_rollout(target, self.revisions, self.router, strategy)
        kept = {target, *found.kept}
        self.revisions = {r: s for r, s in self.revisions.items() if r in kept}
        self.revisions.setdefault(target, STARTING)
        if found.serving == target and (self.router is None or self.router.revision != target):
            self.router = RouterState(target, settled=False)
        return found


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(["start", "shake", "settle", ""])),
    max_size=25,
)


@given(ACTIONS)
def test_a_working_revision_never_goes_while_the_router_uses_it(
    actions: list[tuple[str, str]],
) -> None:
    cluster = Cluster()
    for target, action in actions:
        used = cluster.router.revision if cluster.router else None
        worked = used is not None and cluster.revisions[used].established
        cluster.step(target, "Switch")
        if worked:
            assert used in cluster.revisions
        if action == "start":
            cluster.revisions[target] = SERVING
        elif action == "shake" and cluster.revisions[target].established:
            cluster.revisions[target] = SHAKEN
        elif action == "settle" and cluster.router:
            cluster.router = RouterState(cluster.router.revision, settled=True)


@given(ACTIONS, st.sampled_from(["Switch", "Recreate"]))
def test_whatever_happened_it_ends_at_the_target_alone(
    actions: list[tuple[str, str]], strategy: Strategy
) -> None:
    cluster = Cluster()
    for target, action in actions:
        cluster.step(target, strategy)
        if action == "start":
            cluster.revisions[target] = SERVING
    for _ in range(3):
        cluster.step("last", strategy)
        cluster.revisions["last"] = SERVING
        if cluster.router:
            cluster.router = RouterState(cluster.router.revision, settled=True)
    assert cluster.router == RouterState("last", settled=True)
    assert set(cluster.revisions) == {"last"}


@pytest.mark.parametrize("strategy", ["Switch", "Recreate"])
def test_nothing_to_do_is_nothing_kept(strategy: Strategy) -> None:
    found = decide_rollout("a", {"a": SERVING}, RouterState("a", settled=True), strategy)
    assert found == Rollout("a", "a", frozenset())
