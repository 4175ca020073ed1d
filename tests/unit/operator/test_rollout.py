from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from oasis_operator.desired.limits import Limits
from oasis_operator.desired.metadata import Component
from oasis_operator.desired.revision_state import Goal, RevisionState, RolePods
from oasis_operator.desired.rollout import Rollout, decide_rollout
from tests.unit.operator.cluster_model import DECODE, PREFILL, World

SWITCH = Limits(surge="100%", unavailable=0)
RECREATE = Limits(surge=0, unavailable="100%")


def goal(revision: str = "new", prefill: int = 1, decode: int = 1, routers: int = 1) -> Goal:
    return Goal(revision, {PREFILL: prefill, DECODE: decode}, routers)


def role(wanted: int = 1, ready: int | None = None, leaving: int = 0) -> RolePods:
    return RolePods(wanted, wanted + leaving, leaving, wanted if ready is None else ready)


def state(
    prefill: RolePods | None = None,
    decode: RolePods | None = None,
    *,
    established: bool = True,
    routers: int = 1,
    ready_routers: int = 1,
) -> RevisionState:
    roles = {PREFILL: prefill or role(), DECODE: decode or role()}
    return RevisionState(roles, established, routers, ready_routers)


OLD, NEW, NOBODY = frozenset({"old"}), frozenset({"new"}), frozenset[str]()
SERVING = state()
STARTING = state(role(ready=0), role(ready=0), established=False, ready_routers=0)
SHAKEN = state(role(ready=0), role(ready=0), ready_routers=0)
DRAINED = state(role(), role(), routers=0, ready_routers=0)


def test_the_first_revision_is_selected_at_once() -> None:
    found = decide_rollout(goal(decode=3), None, {}, SWITCH)
    assert found == Rollout("new", "new", {PREFILL: 1, DECODE: 3})


def test_the_old_revision_serves_until_the_new_one_is_ready() -> None:
    found = decide_rollout(goal(), "old", {"old": SERVING, "new": STARTING}, SWITCH)
    assert (found.serving, found.kept, found.routed) == ("old", OLD, OLD)
    assert found.replicas == {PREFILL: 1, DECODE: 1}
    assert not found.resized


@pytest.mark.parametrize(
    "new",
    [
        state(role(ready=0), role()),
        state(role(), role(2, ready=1)),
        state(ready_routers=0),
    ],
    ids=["prefill", "one of two decodes", "router"],
)
def test_each_part_of_the_new_revision_must_be_ready(new: RevisionState) -> None:
    size = {r: pods.wanted for r, pods in new.roles.items()}
    found = decide_rollout(Goal("new", size), "old", {"old": SERVING, "new": new}, SWITCH)
    assert found.serving == "old"


def test_then_the_service_switches_and_the_old_routers_end() -> None:
    found = decide_rollout(goal(), "old", {"old": SERVING, "new": SERVING}, SWITCH)
    assert (found.serving, found.kept, found.routed) == ("new", OLD, NOBODY)


def test_the_old_engines_stay_until_the_last_router_has_finished_its_streams() -> None:
    draining = replace(SERVING, ready_routers=0)
    found = decide_rollout(goal(), "new", {"old": draining, "new": SERVING}, SWITCH)
    assert found.kept == {"old"}
    assert not found.done
    found = decide_rollout(goal(), "new", {"old": DRAINED, "new": SERVING}, SWITCH)
    assert found.kept == frozenset()
    assert found.done


def test_a_revision_that_never_worked_is_replaced_at_once() -> None:
    found = decide_rollout(goal(), "broken", {"broken": STARTING}, SWITCH)
    assert (found.serving, found.kept) == ("new", NOBODY)


def test_a_revision_that_is_shaken_but_worked_is_kept() -> None:
    found = decide_rollout(goal(), "old", {"old": SHAKEN, "new": STARTING}, SWITCH)
    assert (found.serving, found.kept) == ("old", OLD)


def test_a_revision_that_serves_with_some_of_its_pods_is_kept() -> None:
    partly = state(role(), role(4, ready=1), established=False)
    found = decide_rollout(goal(), "old", {"old": partly}, SWITCH)
    assert (found.serving, found.kept) == ("old", OLD)


def test_where_the_old_revision_is_down_the_first_new_pods_take_over() -> None:
    new = state(role(), role(4, ready=1), established=False)
    found = decide_rollout(goal(decode=4), "old", {"old": SHAKEN, "new": new}, SWITCH)
    assert found.serving == "new"


def test_a_revision_between_that_nobody_serves_from_goes() -> None:
    abandoned = replace(STARTING, routers=0)
    found = decide_rollout(goal(), "old", {"old": SERVING, "abandoned": abandoned}, SWITCH)
    assert found.kept == {"old"}


def test_going_back_before_the_switch_drops_the_new_revision() -> None:
    found = decide_rollout(goal("old"), "old", {"old": SERVING, "new": STARTING}, SWITCH)
    assert (found.serving, found.kept) == ("old", NOBODY)


def test_going_back_after_the_switch_is_a_switch_back() -> None:
    states = {"old": replace(DRAINED, routers=1, ready_routers=1), "new": SERVING}
    found = decide_rollout(goal("old"), "new", states, SWITCH)
    assert (found.serving, found.kept, found.routed) == ("old", NEW, NOBODY)


def test_without_room_the_old_pods_go_first() -> None:
    found = decide_rollout(goal(), "old", {"old": SERVING}, RECREATE)
    assert found.resized == {PREFILL: 0, DECODE: 0}
    assert found.replicas is None
    ending = state(role(0, leaving=1), role(0, leaving=1))
    assert decide_rollout(goal(), "old", {"old": ending}, RECREATE).replicas is None
    gone = state(role(0), role(0), ready_routers=0)
    found = decide_rollout(goal(), "old", {"old": gone}, RECREATE)
    assert found.replicas == {PREFILL: 1, DECODE: 1}


def test_half_of_the_pods_can_serve_while_the_other_half_is_replaced() -> None:
    half = Limits(surge=0, unavailable="50%")
    size = goal(prefill=2, decode=4)
    old = state(role(2), role(4))
    found = decide_rollout(size, "old", {"old": old}, half)
    assert found.resized == {PREFILL: 1, DECODE: 2}
    states = {"old": state(role(1), role(2)), "new": state(role(1), role(2))}
    found = decide_rollout(size, "old", states, half)
    assert found.serving == "new"
    assert found.replicas == {PREFILL: 1, DECODE: 2}
    found = decide_rollout(size, "new", {"new": states["new"]}, half)
    assert found.replicas == {PREFILL: 2, DECODE: 4}


def test_an_update_without_room_says_what_to_raise_and_takes_nothing_away() -> None:
    found = decide_rollout(goal(decode=4), "old", {"old": SERVING}, Limits(surge=0, unavailable=0))
    assert (found.serving, found.replicas, found.resized) == ("old", None, {})
    assert "maxSurge" in found.blocked


def test_two_pairs_that_do_not_fit_into_the_budget_are_not_started() -> None:
    limits = replace(SWITCH, devices={PREFILL: 1, DECODE: 2}, budget=5)
    found = decide_rollout(goal(), "old", {"old": SERVING}, limits)
    assert "5 GPUs" in found.blocked
    found = decide_rollout(goal(), "old", {"old": SERVING}, replace(limits, budget=6))
    assert found.replicas == {PREFILL: 1, DECODE: 1}


def test_while_a_new_revision_loads_the_old_one_follows_the_load() -> None:
    more = replace(goal(decode=3), elastic=True)
    found = decide_rollout(more, "old", {"old": SERVING, "new": STARTING}, SWITCH)
    assert found.resized == {DECODE: 3}
    assert found.replicas == {PREFILL: 1, DECODE: 3}
    fixed = decide_rollout(goal(decode=3), "old", {"old": SERVING, "new": STARTING}, SWITCH)
    assert not fixed.resized


def test_but_not_into_the_room_of_the_new_one() -> None:
    more = replace(goal(decode=2), elastic=True)
    limits = replace(SWITCH, devices={PREFILL: 1, DECODE: 1}, budget=5)
    new = state(role(ready=0), role(2, ready=0), established=False, ready_routers=0)
    found = decide_rollout(more, "old", {"old": SERVING, "new": new}, limits)
    assert found.resized == {}


def test_a_missing_service_goes_to_the_revision_that_can_serve() -> None:
    found = decide_rollout(goal(), None, {"old": SERVING, "new": STARTING}, SWITCH)
    assert found.serving == "old"
    found = decide_rollout(goal(), None, {"old": SERVING, "new": SERVING}, SWITCH)
    assert found.serving == "new"


def test_more_replicas_are_more_pods_of_the_same_revision() -> None:
    found = decide_rollout(goal("old", decode=3), "old", {"old": SERVING}, RECREATE)
    assert found == Rollout("old", "old", {PREFILL: 1, DECODE: 3})


def test_a_role_more_or_less_is_an_update_like_any_other() -> None:
    alone = RevisionState({DECODE: role()}, established=True, routers=1, ready_routers=1)
    found = decide_rollout(goal(), "old", {"old": alone}, SWITCH)
    assert (found.serving, found.replicas) == ("old", {PREFILL: 1, DECODE: 1})
    found = decide_rollout(Goal("new", {DECODE: 1}), "old", {"old": SERVING}, SWITCH)
    assert (found.serving, found.replicas, found.resized) == ("old", {DECODE: 1}, {})


AMOUNTS = st.one_of(st.integers(0, 3), st.sampled_from(["0%", "25%", "50%", "100%"]))


@st.composite
def limits(draw: st.DrawFn) -> Limits:
    devices = {PREFILL: draw(st.integers(1, 2)), DECODE: draw(st.integers(1, 2))}
    budget = draw(st.none() | st.integers(4, 20))
    return Limits(draw(AMOUNTS), draw(AMOUNTS), devices, budget)


@st.composite
def goals(draw: st.DrawFn) -> Goal:
    """What pods there are is a matter of the revision, how many is not: ``c`` has one role."""
    name = draw(st.sampled_from("abc"))
    size = {role: draw(st.integers(1, 4)) for role in (PREFILL, DECODE)}
    if name == "c":
        del size[PREFILL]
    return Goal(name, size, draw(st.integers(1, 2)), elastic=draw(st.booleans()))


GOALS = st.lists(goals(), min_size=1, max_size=5)
"""Specs that follow each other; one may come back in another size."""
SEEDS = st.integers(0, 1 << 32)


def reconcile(world: World, wanted: Goal) -> Rollout:
    """One step, and every promise about it."""
    before, seen = world.copy(), world.capacity()
    plan = world.decide(wanted)
    world.carry_out(wanted, plan)
    after = world.capacity()
    for name in wanted.replicas.keys() & seen.keys():
        floor = world.limits.floor(wanted.replicas[name])
        if before.states()[before.selected or ""].can_serve:
            assert after.get(name, 0) >= min(floor, seen[name]), "below the availability bound"
    for name, size in wanted.replicas.items():
        grown = world.pods(name) > before.pods(name)
        assert not grown or world.pods(name) <= world.limits.ceiling(size), "over the ceiling"
    pods = {name: world.pods(name) for name in Component}
    grown = any(world.pods(name) > before.pods(name) for name in Component)
    assert not grown or world.limits.fits(pods), "over the budget"
    _nobody_is_cut_off(before, world)
    return plan


def _nobody_is_cut_off(before: World, world: World) -> None:
    """No engines go that a router may still have streams to, but for those that may be missing."""
    for name, state_before in before.states().items():
        routers = world.states().get(name)
        gone = {r for r in state_before.roles if (name, r) not in world.engines}
        if state_before.can_serve and routers and routers.routers:
            assert not gone & {r for n, r in before.engines if n == name}, "engines before routers"


def settle(world: World, wanted: Goal, seed: int) -> Rollout:
    """Everything that starts gets ready and everything that ends is gone, in any order."""
    order = random.Random(seed)
    for _ in range(400):
        before = world.copy()
        plan = reconcile(world, wanted)
        events = list(world.events())
        if events:
            world.happen(order.choice(events))
        elif world == before:
            return plan
    raise AssertionError(f"no end: {plan}")


def disturb(world: World, data: st.DataObject) -> None:
    """A few things happen, crashes among them."""
    for _ in range(data.draw(st.integers(0, 6))):
        crashes = [("crash", key) for key, pods in world.engines.items() if pods.ready]
        events: list[tuple[str, object]] = [*world.events(), *crashes]
        if events:
            world.happen(data.draw(st.sampled_from(events)))


@given(GOALS, limits(), SEEDS, st.data())
def test_every_step_is_legal_and_it_ends_at_the_target_alone(
    wanted: list[Goal], bounds: Limits, seed: int, data: st.DataObject
) -> None:
    assume(all(bounds.fits(step.replicas) for step in wanted))
    world = World(bounds)
    for step in wanted:
        for _ in range(data.draw(st.integers(1, 4))):
            reconcile(world, step)
            disturb(world, data)
    plan = settle(world, wanted[-1], seed)
    if plan.blocked:
        # Then the old one serves as before, with all of its pods but those that it lacked already.
        assert plan.serving != plan.target
        assert world.capacity()
        return
    assert plan.done
    assert {name for name, _ in world.engines} == {wanted[-1].revision}
    assert world.capacity() == wanted[-1].replicas


@given(GOALS, st.sampled_from([SWITCH, RECREATE]), SEEDS, st.data())
def test_with_either_strategy_every_update_arrives(
    wanted: list[Goal], bounds: Limits, seed: int, data: st.DataObject
) -> None:
    world = World(bounds)
    for step in wanted:
        reconcile(world, step)
        disturb(world, data)
    assert settle(world, wanted[-1], seed).done
    assert world.capacity() == wanted[-1].replicas


@given(goals(), limits(), st.integers(0, 40), SEEDS)
def test_going_back_works_from_every_state_of_an_update(
    old: Goal, bounds: Limits, steps: int, seed: int
) -> None:
    assume(bounds.fits(old.replicas))
    world, order = World(bounds), random.Random(seed)
    new = replace(old, revision="new")
    settle(world, old, seed)
    for _ in range(steps):
        reconcile(world, new)
        events = list(world.events())
        if events:
            world.happen(order.choice(events))
    assert settle(world, old, seed).done
    assert {name for name, _ in world.engines} == {old.revision}
    assert world.capacity() == old.replicas


@given(goals(), SEEDS)
def test_a_new_revision_that_never_gets_ready_takes_nothing_from_the_old_one(
    old: Goal, seed: int
) -> None:
    world, order = World(SWITCH), random.Random(seed)
    settle(world, old, seed)
    for _ in range(20):
        plan = reconcile(world, replace(old, revision="stuck"))
        events = [event for event in world.events() if event[0] != "get_ready"]
        if events:
            world.happen(order.choice(events))
        assert plan.serving == old.revision
        assert world.capacity() == old.replicas
