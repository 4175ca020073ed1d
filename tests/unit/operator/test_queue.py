from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasis_operator.cluster import queue as queue_module
from oasis_operator.cluster.queue import LONGEST_BACKOFF_SECONDS, DirtyQueue, Key, backoff

A, B = Key("team", "a"), Key("team", "b")


async def drained(queue: DirtyQueue) -> list[Key]:
    out = []
    while queue.depth:
        key = await asyncio.wait_for(queue.take(), 1)
        out.append(key)
        queue.done(key)
    return out


async def test_a_key_that_is_marked_often_is_worked_on_once() -> None:
    queue = DirtyQueue()
    for key in (A, B, A, A):
        queue.mark(key)
    assert await drained(queue) == [A, B]


async def test_a_key_that_is_marked_while_worked_on_is_worked_on_again_and_not_twice() -> None:
    queue = DirtyQueue()
    queue.mark(A)
    key = await queue.take()
    queue.mark(A)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.take(), 0.01)
    queue.done(key)
    assert await drained(queue) == [A]


async def test_a_failed_key_comes_back_by_itself() -> None:
    queue = DirtyQueue()
    queue.mark(A)
    queue.failed(await queue.take(), delay=0.001)
    assert await asyncio.wait_for(queue.take(), 1) == A


async def test_the_earliest_later_mark_counts() -> None:
    queue = DirtyQueue()
    queue.mark_later(A, 3600)
    queue.mark_later(A, 0.001)
    queue.mark_later(A, 3600)
    assert await asyncio.wait_for(queue.take(), 1) == A


async def test_news_of_a_crowd_need_one_more_look_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_module, "GATHER_SECONDS", 0.05)
    queue = DirtyQueue()
    queue.mark_soon(A)
    assert await drained(queue) == [A]
    for _ in range(3):
        queue.mark_soon(A)
    assert queue.depth == 0
    assert await asyncio.wait_for(queue.take(), 1) == A
    queue.done(A)
    assert queue.depth == 0


async def test_another_spec_does_not_wait_for_news_to_gather() -> None:
    queue = DirtyQueue()
    queue.mark_soon(A)
    assert await drained(queue) == [A]
    queue.mark(A)
    assert await drained(queue) == [A]


async def test_a_forgotten_key_does_not_come_back() -> None:
    queue = DirtyQueue()
    queue.mark_later(A, 0.001)
    queue.forget(A)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.take(), 0.05)


async def test_waiting_and_working_times_are_known() -> None:
    now = 0.0
    queue = DirtyQueue(clock=lambda: now)
    assert (queue.oldest_wait(), queue.longest_work()) == (0.0, 0.0)
    queue.mark(A)
    now = 5.0
    assert queue.oldest_wait() == 5.0
    await queue.take()
    now = 12.0
    assert (queue.oldest_wait(), queue.longest_work()) == (0.0, 7.0)


@given(st.integers(1, 1000))
def test_backoff_grows_up_to_a_bound(failures: int) -> None:
    assert 0 < backoff(failures) <= backoff(failures + 1) <= LONGEST_BACKOFF_SECONDS
