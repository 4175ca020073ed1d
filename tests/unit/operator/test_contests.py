"""How long what others write again and again is left as it is."""

from __future__ import annotations

from oasis_operator.cluster.contests import (
    AT_ONCE,
    CALM_SECONDS,
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    Contests,
)
from oasis_operator.cluster.queue import Key
from oasis_operator.reconcile.observed import ObjectKey

CHAT, OTHER = Key("team", "chat"), Key("team", "other")
NAME = ObjectKey("Service", "chat-router")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def undone(contests: Contests, times: int) -> list[bool]:
    return [contests.undone(CHAT, NAME) for _ in range(times)]


def test_a_few_changes_are_undone_at_once() -> None:
    contests = Contests(Clock())
    assert undone(contests, AT_ONCE - 1) == [False] * (AT_ONCE - 1)
    assert contests.pause(CHAT, NAME) == 0


def test_the_pause_doubles_up_to_a_bound_and_passes() -> None:
    clock = Clock()
    contests = Contests(clock)
    assert undone(contests, AT_ONCE)[-1]
    assert contests.pause(CHAT, NAME) == FIRST_PAUSE_SECONDS
    undone(contests, 1)
    assert contests.pause(CHAT, NAME) == 2 * FIRST_PAUSE_SECONDS
    undone(contests, 20)
    assert contests.pause(CHAT, NAME) == LONGEST_PAUSE_SECONDS
    clock.now += LONGEST_PAUSE_SECONDS
    assert contests.pause(CHAT, NAME) == 0


def test_after_a_calm_time_changes_are_undone_at_once_again() -> None:
    clock = Clock()
    contests = Contests(clock)
    undone(contests, AT_ONCE)
    clock.now += CALM_SECONDS + 1
    assert undone(contests, 1) == [False]
    assert contests.pause(CHAT, NAME) == 0


def test_objects_of_others_are_not_in_it_nor_those_of_one_that_is_gone() -> None:
    contests = Contests(Clock())
    undone(contests, AT_ONCE)
    assert contests.pause(OTHER, NAME) == 0
    contests.forget(CHAT)
    assert contests.pause(CHAT, NAME) == 0
