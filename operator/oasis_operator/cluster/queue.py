"""The dirty set: keys to reconcile, each at most once in the queue and at most in one worker."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import NamedTuple

FIRST_BACKOFF_SECONDS = 0.2
LONGEST_BACKOFF_SECONDS = 60.0
GATHER_SECONDS = 0.5
"""Pods come and go in crowds, and one look is enough for all news of such a time."""


class Key(NamedTuple):
    """Identity of an OasisDeployment."""

    namespace: str
    name: str


def backoff(failures: int) -> float:
    """Seconds to wait after so many failures in a row, before jitter."""
    return float(min(LONGEST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2 ** min(failures - 1, 16)))


class DirtyQueue:
    """Level-based: a key that is marked while it is worked on is worked on once more."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ready: asyncio.Queue[Key] = asyncio.Queue()
        self._dirty: dict[Key, float] = {}
        self._busy: dict[Key, float] = {}
        self._failures: dict[Key, int] = {}
        self._later: dict[Key, asyncio.TimerHandle] = {}
        self._gathering: dict[Key, asyncio.TimerHandle] = {}
        """Keys that were taken within the last :data:`GATHER_SECONDS`."""

    def mark(self, key: Key) -> None:
        """Something about ``key`` may have changed."""
        if key in self._dirty:
            return
        self._dirty[key] = self._clock()
        if key not in self._busy:
            self._ready.put_nowait(key)

    def mark_soon(self, key: Key) -> None:
        """As :meth:`mark`, but not within :data:`GATHER_SECONDS` of the last look."""
        gathering = self._gathering.get(key)
        if gathering is None:
            self.mark(key)
        elif key not in self._dirty:
            self.mark_later(key, gathering.when() - asyncio.get_running_loop().time())

    def mark_later(self, key: Key, delay: float) -> None:
        """Marks after ``delay`` seconds; the earliest of several such requests counts."""
        loop = asyncio.get_running_loop()
        known = self._later.get(key)
        if known is not None:
            if known.when() <= loop.time() + delay:
                return
            known.cancel()
        self._later[key] = loop.call_later(delay, self._mark_now, key)

    async def take(self) -> Key:
        """Waits for a dirty key; the caller must call :meth:`done` or :meth:`failed` with it."""
        key = await self._ready.get()
        del self._dirty[key]
        self._busy[key] = self._clock()
        if key in self._gathering:
            self._gathering[key].cancel()
        loop = asyncio.get_running_loop()
        self._gathering[key] = loop.call_later(GATHER_SECONDS, self._gathering.pop, key)
        return key

    def done(self, key: Key) -> None:
        self._failures.pop(key, None)
        self._release(key)

    def failed(self, key: Key, delay: float | None = None) -> None:
        """Comes back after ``delay`` seconds, or after a growing time."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self._release(key)
        wait = backoff(failures) if delay is None else delay
        self.mark_later(key, wait * random.uniform(1.0, 1.3))

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._failures.pop(key, None)
        timer = self._later.pop(key, None)
        if timer is not None:
            timer.cancel()

    @property
    def depth(self) -> int:
        return len(self._dirty)

    def oldest_wait(self) -> float:
        """Seconds that the oldest dirty key has waited for a worker."""
        return self._clock() - min(self._dirty.values(), default=self._clock())

    def longest_work(self) -> float:
        """Seconds that the longest running worker is at its key."""
        return self._clock() - min(self._busy.values(), default=self._clock())

    def _mark_now(self, key: Key) -> None:
        self._later.pop(key, None)
        self.mark(key)

    def _release(self, key: Key) -> None:
        del self._busy[key]
        if key in self._dirty:
            self._ready.put_nowait(key)
