"""Workers between the queue and the reconciler, resync, and the watches that feed them."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterable
from typing import Any, cast

import kopf

from oasis_operator.cluster.errors import (
    ApiError,
    ConflictError,
    MissingError,
    NamespaceTerminatingError,
    RefusedError,
    TooManyRequestsError,
    UnreachableError,
)
from oasis_operator.cluster.kinds import ResourceKind
from oasis_operator.cluster.queue import DirtyQueue, Key
from oasis_operator.cluster.reconciler import Reconciler
from oasis_operator.cluster.refill import child_kinds, refill
from oasis_operator.cluster.server import ApiServer
from oasis_operator.cluster.store import Store
from oasis_operator.cluster.watch import watch_settings, watches
from oasis_operator.logs import about
from oasis_operator.metrics import OperatorMetrics, Result

WORKERS = 8
RESYNCS_PER_REFILL = 10
"""A deletion that a watch missed is noticed after so many resyncs at the latest."""
REFILL_SECONDS = 1.0
"""A watch seldom expires alone: one refill is enough for all that do in such a time."""
FIRST_LISTS_SECONDS = 1.0
RECONCILE_SECONDS = 60.0

log = logging.getLogger(__name__)


class Controller:
    """Runs while this replica leads."""

    def __init__(
        self,
        server: ApiServer,
        reconciler: Reconciler,
        store: Store,
        queue: DirtyQueue,
        metrics: OperatorMetrics,
        resync_seconds: float,
        identity: str,
    ) -> None:
        self._server = server
        self._reconciler = reconciler
        self._store = store
        self._queue = queue
        self._metrics = metrics
        self._resync_seconds = resync_seconds
        self._identity = identity
        self.watching = asyncio.Event()
        """Set when the watches are up."""
        self.failed = asyncio.Event()
        """Set when a worker, the resync or the refill ended, which none ever should."""
        self._refill_due = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Works until ``stop`` is set, or until kopf ends by itself."""
        metrics, queue = self._metrics, self._queue
        children = await self._refilled()
        metrics.queue_depth.set_function(lambda: queue.depth)
        tasks = [asyncio.create_task(self._work()) for _ in range(WORKERS)]
        tasks.append(asyncio.create_task(self._resync()))
        tasks.append(asyncio.create_task(self._refill(children)))
        for task in tasks:
            task.add_done_callback(lambda _: self.failed.set())
        try:
            await kopf.operator(
                registry=watches(self._store, queue, children, self._refill_due.set),
                settings=watch_settings(children),
                clusterwide=True,
                standalone=True,
                # Else kopf asks for the user's name, and a container's user has none.
                identity=cast("Any", self._identity),
                stop_flag=stop,
                ready_flag=self.watching,
            )
        finally:
            for task in tasks:
                task.cancel()

    async def _refilled(self) -> tuple[ResourceKind, ...]:
        """The first lists: nothing can be done without them."""
        while True:
            try:
                children = await child_kinds(self._server)
                keys = await refill(self._server, self._store, children)
            except ApiError as error:
                log.warning("the first lists: %s", error)
                await asyncio.sleep(FIRST_LISTS_SECONDS)
            else:
                # The lists of the watches that follow will be no news.
                self._mark(keys)
                return children

    def _mark(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._queue.mark(key)

    async def _resync(self) -> None:
        for count in itertools.count(1):
            await asyncio.sleep(self._resync_seconds)
            self._mark(self._store.resources())
            self._metrics.resyncs.inc()
            if count % RESYNCS_PER_REFILL == 0:
                self._refill_due.set()

    async def _refill(self, children: tuple[ResourceKind, ...]) -> None:
        """Lists all anew whenever that is due. Ends where the watches have to be others."""
        while True:
            await self._refill_due.wait()
            await asyncio.sleep(REFILL_SECONDS)
            self._refill_due.clear()
            try:
                if await child_kinds(self._server) != children:
                    log.error("the cluster serves other kinds of objects now: starting anew")
                    return
                self._mark(await refill(self._server, self._store, children))
            except ApiError as error:
                log.warning("refill: %s", error)
                self._refill_due.set()

    async def _work(self) -> None:
        while True:
            key = await self._queue.take()
            with about(key), self._metrics.reconcile_seconds.time():
                result = await self._once(key)
            self._metrics.reconciles.labels(result).inc()

    async def _once(self, key: Key) -> Result:
        """One reconcile; every failure comes back later and none ends the worker."""
        queue = self._queue
        try:
            async with asyncio.timeout(RECONCILE_SECONDS):
                again = await self._reconciler.reconcile(key)
        except NamespaceTerminatingError:
            queue.done(key)
            return "terminating"
        except TooManyRequestsError as error:
            queue.failed(key, error.retry_after)
            return "throttled"
        except (ConflictError, MissingError) as error:
            log.info("changed meanwhile: %s", error)
            queue.failed(key)
            return "conflict"
        except UnreachableError as error:
            log.warning("%s", error)
            queue.failed(key)
            return "unreachable"
        except RefusedError as error:
            log.warning("refused: %s", error)
            queue.failed(key)
            return "refused"
        except Exception:
            log.exception("reconcile failed")
            queue.failed(key)
            return "error"
        queue.done(key)
        if again is not None:
            queue.mark_later(key, again)
        return "ok"
