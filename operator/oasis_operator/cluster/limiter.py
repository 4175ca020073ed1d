"""A token bucket in front of the API server, where what serves requests goes first."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from enum import IntEnum


class Priority(IntEnum):
    """Lower goes first: a spec must not wait behind reports about specs."""

    SPEC = 0
    STATUS = 1


class Limiter:
    """Hands out ``rate`` tokens per second, and ``burst`` at once after a quiet time."""

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._tokens = burst
        self._filled_at = clock()
        self._not_before = 0.0
        self._order = itertools.count()
        self._waiting: list[tuple[Priority, int, asyncio.Future[None]]] = []
        self._server: asyncio.Task[None] | None = None

    async def take(self, priority: Priority) -> None:
        """Waits for a token."""
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (priority, next(self._order), turn))
        if self._server is None or self._server.done():
            self._server = asyncio.create_task(self._serve())
        await turn

    def pause(self, seconds: float) -> None:
        """Hands out nothing for a time: the server has said that it is asked too much."""
        self._not_before = max(self._not_before, self._clock() + seconds)

    async def _serve(self) -> None:
        while self._waiting:
            delay = self._delay()
            if delay > 0:
                await asyncio.sleep(delay)
                continue
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                self._tokens -= 1
                turn.set_result(None)

    def _delay(self) -> float:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        return max(self._not_before - now, (1 - self._tokens) / self._rate)
