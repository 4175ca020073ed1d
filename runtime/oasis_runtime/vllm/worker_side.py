"""The connector's half in vLLM's worker: what happens before and after each step."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from oasis_runtime.contract import Metric
from oasis_runtime.kernels.contract import I32
from oasis_runtime.vllm.messages import ExportOrder, LoadOrder, Results, Source, StepOrders
from oasis_runtime.vllm.metrics import engine_stats, key
from oasis_runtime.vllm.session import Session


class OwnerRole(Protocol):
    """A prefill engine's exports."""

    def offer(self, order: ExportOrder) -> None: ...
    def poll(self, results: Results) -> None: ...
    def stats(self) -> dict[str, Any]: ...
    def gauges(self) -> dict[str, float]: ...
    def close(self) -> None: ...


class ReaderRole(Protocol):
    """A decode engine's loads and fetches."""

    @property
    def waiting(self) -> bool: ...
    def load(self, order: LoadOrder) -> None: ...
    def end(self, request_id: str) -> None: ...
    def decline(self, source: Source) -> None: ...
    def fetch(self, wants: Mapping[str, I32]) -> None: ...
    def poll(self, results: Results, scheduled: Collection[str]) -> None: ...
    def stats(self) -> dict[str, Any]: ...
    def close(self) -> None: ...


class WorkerSide:
    """Owner and reader of one worker, driven once before and once after each step."""

    def __init__(
        self, session: Session, owner: OwnerRole | None, reader: ReaderRole | None
    ) -> None:
        self._session = session
        self._owner = owner
        self._reader = reader
        self._results = Results()
        self._gauges: dict[str, float] = {}

    def before_step(self, orders: StepOrders) -> None:
        engine = self._session.engine
        for request_id, options in orders.options.items():
            engine.requests.configure(request_id, options)
        for export in orders.exports:
            if self._owner is not None:
                self._owner.offer(export)
        for request_id in (*orders.ended, *orders.preempted):
            if self._reader is not None:
                self._reader.end(request_id)
            engine.requests.release(request_id)
        for request_id in orders.ended:
            engine.requests.forget(request_id)
        if self._reader is not None:
            for load in orders.loads:
                self._reader.load(load)
            for source in orders.unread:
                self._reader.decline(source)
        if self._owner is not None:
            self._owner.poll(self._results)
        if self._reader is not None:
            self._reader.poll(self._results, orders.scheduled)

    def after_step(self) -> None:
        wants = self._session.end_step()
        if self._reader is not None:
            self._reader.fetch(wants)

    def take_results(self) -> Results:
        results, self._results = self._results, Results()
        return results

    @property
    def waiting(self) -> bool:
        """Whether a load is under way, so that the next poll should come soon."""
        return self._reader is not None and self._reader.waiting

    def stats(self) -> dict[str, Any]:
        """Increments since the last call, and the gauges that changed."""
        engine = self._session.engine
        data = engine_stats(engine.statistics.take())
        g = engine.tables.geometry
        resident = engine.tables.resident()
        gauges = {
            key(Metric.FAST_SLOTS, "used"): float(resident),
            key(Metric.FAST_SLOTS, "total"): float(g.layers * g.slots),
            key(Metric.RESIDENT_BLOCKS_PER_HEAD): round(resident / (g.layers * g.heads), 1),
            key(Metric.ESCALATED_HEADS): float(engine.escalation.count),
            key(Metric.PREFETCH_CAP): round(engine.cap, 3),
        }
        for role in (self._owner, self._reader):
            if role is not None:
                data |= role.stats()
        if self._owner is not None:
            gauges |= self._owner.gauges()
        data |= {k: v for k, v in gauges.items() if self._gauges.get(k) != v}
        self._gauges = gauges
        return data

    def close(self) -> None:
        for role in (self._owner, self._reader):
            if role is not None:
                role.close()
        self._session.engine.close()
