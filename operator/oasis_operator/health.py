"""Liveness and readiness that mean something: 503 comes with the sentence that says why."""

from __future__ import annotations

import time
from collections.abc import Callable

from oasis_operator.cluster.queue import DirtyQueue

ELECTION_SECONDS = 60.0
"""Silence of the election after which the replica counts as stuck. Longer than an API server
takes to restart: then a leader ends by itself, and a waiting replica has nothing to restart for."""
WAIT_SECONDS = 300.0
WORK_SECONDS = 120.0
FRESH_SECONDS = 30.0


class Health:
    """Collects signs of life. Stuck is what a restart would repair, and nothing else."""

    def __init__(self, queue: DirtyQueue, clock: Callable[[], float] = time.monotonic) -> None:
        self._queue = queue
        self._clock = clock
        self._tried_at = clock()
        self._heard_at = float("-inf")
        self._watching: Callable[[], bool] | None = None

    def election_tried(self) -> None:
        """The election has made an attempt, whatever came of it."""
        self._tried_at = self._clock()

    def election_heard(self) -> None:
        """The API server answered the election."""
        self._heard_at = self._clock()

    def leads(self, watching: Callable[[], bool]) -> None:
        """From now on this replica is ready when its watches are up."""
        self._watching = watching

    def stuck(self) -> str:
        """Why a restart is needed; empty if none is."""
        silence = self._clock() - self._tried_at
        if silence > ELECTION_SECONDS:
            return f"no election attempt for {silence:.0f} s"
        if self._queue.oldest_wait() > WAIT_SECONDS:
            return f"an OasisDeployment waits for {self._queue.oldest_wait():.0f} s"
        if self._queue.longest_work() > WORK_SECONDS:
            return f"a reconcile takes {self._queue.longest_work():.0f} s"
        return ""

    def unready(self) -> str:
        """Why this replica does not do its part; empty if it does."""
        if self._clock() - self._heard_at > FRESH_SECONDS:
            return "the API server does not answer"
        if self._watching is not None and not self._watching():
            return "the watches are not up yet"
        return ""
