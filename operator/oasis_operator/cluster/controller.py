"""Workers between the queue and the reconciler, resync, and the watches that feed them."""

from __future__ import annotations

import asyncio
import logging

import kopf

from oasis_operator.cluster.errors import (
    NamespaceTerminatingError,
    RefusedError,
    TooManyRequestsError,
    UnreachableError,
)
from oasis_operator.cluster.queue import DirtyQueue, Key
from oasis_operator.cluster.reconciler import Reconciler
from oasis_operator.cluster.store import Store
from oasis_operator.cluster.watch import watch_settings, watches
from oasis_operator.metrics import OperatorMetrics

WORKERS = 8
RECONCILE_SECONDS = 60.0

log = logging.getLogger(__name__)


class Controller:
    """Runs while this replica leads."""

    def __init__(
        self,
        reconciler: Reconciler,
        store: Store,
        queue: DirtyQueue,
        metrics: OperatorMetrics,
        resync_seconds: float,
    ) -> None:
        self._reconciler = reconciler
        self._store = store
        self._queue = queue
        self._metrics = metrics
        self._resync_seconds = resync_seconds
        self.watching = asyncio.Event()
        """Set when the watches are up."""
        self.failed = asyncio.Event()
        """Set when a worker or the resync ended, which neither ever should."""

    async def run(self, stop: asyncio.Event) -> None:
        """Works until ``stop`` is set, or until kopf ends by itself."""
        metrics, queue = self._metrics, self._queue
        metrics.queue_depth.set_function(lambda: queue.depth)
        tasks = [asyncio.create_task(self._work()) for _ in range(WORKERS)]
        tasks.append(asyncio.create_task(self._resync()))
        for task in tasks:
            task.add_done_callback(lambda _: self.failed.set())
        try:
            await kopf.operator(
                registry=watches(self._store, queue),
                settings=watch_settings(),
                clusterwide=True,
                standalone=True,
                stop_flag=stop,
                ready_flag=self.watching,
            )
        finally:
            for task in tasks:
                task.cancel()

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(self._resync_seconds)
            self._metrics.resyncs.inc()
            for key in self._store.resources():
                self._queue.mark(key)

    async def _work(self) -> None:
        while True:
            key = await self._queue.take()
            with self._metrics.reconcile_seconds.time():
                result = await self._once(key)
            self._metrics.reconciles.labels(result).inc()

    async def _once(self, key: Key) -> str:
        """One reconcile; every failure comes back later and none ends the worker."""
        queue = self._queue
        where = f"{key.namespace}/{key.name}"
        try:
            async with asyncio.timeout(RECONCILE_SECONDS):
                again = await self._reconciler.reconcile(key)
        except NamespaceTerminatingError:
            queue.done(key)
            return "terminating"
        except TooManyRequestsError as error:
            queue.failed(key, error.retry_after)
            return "throttled"
        except UnreachableError as error:
            log.warning("%s: %s", where, error)
            queue.failed(key)
            return "unreachable"
        except RefusedError as error:
            log.warning("%s: refused: %s", where, error)
            queue.failed(key)
            return "refused"
        except Exception:
            log.exception("%s: reconcile failed", where)
            queue.failed(key)
            return "error"
        queue.done(key)
        if again is not None:
            queue.mark_later(key, again)
        return "ok"
