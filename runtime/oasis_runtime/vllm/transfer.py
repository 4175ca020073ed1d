"""Exports of a prefill engine and loads of a decode engine, in the terms of the engine core.

Imported only where a peer exists: it needs NIXL.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from vllm.logger import init_logger

from oasis_runtime.contract import Metric
from oasis_runtime.core.admission import Admission, hot_pages
from oasis_runtime.core.requests import Selection
from oasis_runtime.kernels.contract import I32, U8
from oasis_runtime.pd.counters import OwnerCounters, ReaderCounters
from oasis_runtime.pd.exporter import Exporter
from oasis_runtime.pd.importer import Importer
from oasis_runtime.pd.settings import TransferSettings
from oasis_runtime.pd.types import Admitted, Export, Landed, Lost, Mode, Peer
from oasis_runtime.serve.payload import EnginePayload
from oasis_runtime.vllm.layout import PageLayout
from oasis_runtime.vllm.messages import ExportOrder, LoadOrder, Results, Source
from oasis_runtime.vllm.metrics import key
from oasis_runtime.vllm.session import Session

logger = init_logger(__name__)


class HostPages:
    """The host tier as a peer reads it: logical blocks through an export's block list."""

    def __init__(self, session: Session) -> None:
        g = session.engine.tables.geometry
        self._kernels = session.engine.kernels
        self.page_bytes, self.layers, self.kv_heads = g.page_bytes, g.layers, g.heads

    def read_pages(self, block_ids: npt.NDArray[np.int32], pages: I32, out: U8) -> None:
        host = np.array(pages, np.int32, order="C")
        host[:, 2] = block_ids[pages[:, 2]]
        self._kernels.read_pages(host, out)


@dataclass
class _Load:
    order: LoadOrder
    admission: Admission | None = None
    cancelled: bool = False
    """The request ended while its pages were on their way."""


class Owner:
    """Exports of a prefill engine."""

    def __init__(self, session: Session, exporter: Exporter) -> None:
        self._session = session
        self._exporter = exporter
        self._counted: OwnerCounters | None = None

    def offer(self, order: ExportOrder) -> None:
        engine = self._session.engine
        tables = engine.tables
        g = tables.geometry
        blocks = np.array(order.blocks, np.int32)
        selection = engine.requests.selection_of(order.request_id)
        if selection is None:  # a short prompt: everything is its window
            nothing = np.zeros((g.layers, g.heads, 0), np.int32)
            count = np.zeros((g.layers, g.heads), np.int32)
            selection = Selection(nothing, count, 0, order.tokens)
        sinks = engine.requests.budget_of(order.request_id).sinks
        self._exporter.offer(
            Export(
                request_id=order.request_id,
                generation=order.generation,
                n_tokens=order.tokens,
                block_ids=blocks,
                hot=hot_pages(selection, sinks, len(blocks)),
                blob=Admission.of(tables, blocks, selection).encode(),
                digest=order.digest,
            )
        )

    def poll(self, results: Results) -> None:
        for ended in self._exporter.poll():
            results.sent.add(ended.request_id)

    def stats(self) -> dict[str, Any]:
        """Counters since the last call."""
        now, old = self._exporter.counters(), self._counted
        self._counted = now
        moved = {
            key(Metric.TIER_BYTES, "host", "remote", "admission"): now.admission_bytes
            - (old.admission_bytes if old else 0),
            key(Metric.TIER_BYTES, "host", "remote", "demand"): now.demand_bytes
            - (old.demand_bytes if old else 0),
            key(Metric.LEASES_EXPIRED): now.expired - (old.expired if old else 0),
            key(Metric.REFUSED_TRANSFERS, "owner"): now.refused - (old.refused if old else 0),
        }
        return {name: value for name, value in moved.items() if value}

    def gauges(self) -> dict[str, float]:
        return {
            key(Metric.EXPORTS): float(self._exporter.outstanding()),
            key(Metric.EXPORT_OLDEST_SECONDS): round(self._exporter.oldest_age(), 0),
        }

    def close(self) -> None:
        self._exporter.close()


class Reader:
    """Loads of a decode engine, and the pages that it fetches while it decodes."""

    def __init__(self, session: Session, importer: Importer, rank: int) -> None:
        """``rank``: this worker's, which reads from the peer's worker of the same rank."""
        self._session = session
        self._rank = rank
        self._importer = importer
        self._loading: dict[str, _Load] = {}
        self._remote: dict[str, LoadOrder] = {}
        """Requests whose other pages are with a peer."""
        self._fetching: set[str] = set()
        self._gone: dict[str, int] = {}
        """Requests whose peer is gone, and the first host block that is not complete."""
        self._refused: dict[str, str] = {}
        """Loads that could not be asked for, and why."""
        self._rejected = 0
        """Loads given up because of what was asked for or what came, not yet in the statistics."""
        self._counted: ReaderCounters | None = None

    def load(self, order: LoadOrder) -> None:
        engine = self._session.engine
        engine.prepare(np.array(order.blocks[order.first :], np.int32))
        self._loading[order.request_id] = _Load(order)
        try:
            self._importer.admit(
                order.request_id,
                self._peer(order.source),
                order.source.request_id,
                order.source.generation,
                order.source.digest,
                Mode.ALL if order.whole else Mode.HOT,
            )
        except ValueError as error:  # an id or generation that no prefill engine gave
            self._refused[order.request_id] = str(error)

    def _peer(self, source: Source) -> Peer:
        return Peer(source.host, source.port + self._rank)

    def decline(self, source: Source) -> None:
        """Let the peer free an export that is not needed, without waiting for its lease."""
        name = f"unread {source.request_id}"
        try:
            self._importer.admit(
                name,
                self._peer(source),
                source.request_id,
                source.generation,
                source.digest,
            )
        except ValueError:  # an id or generation that no prefill engine gave, or told already
            return
        self._importer.release(name)

    def end(self, request_id: str) -> None:
        """The request needs its peer no more."""
        if request_id in self._loading:
            self._loading[request_id].cancelled = True
        self._gone.pop(request_id, None)
        if self._remote.pop(request_id, None) is not None:
            self._fetching.discard(request_id)
            self._importer.release(request_id)

    def fetch(self, wants: Mapping[str, I32]) -> None:
        """Ask for pages; one fetch a request is under way at a time."""
        for request_id, pages in wants.items():
            if request_id not in self._remote or request_id in self._fetching:
                continue
            if self._importer.fetch(request_id, pages) is not None:
                self._fetching.add(request_id)

    @property
    def waiting(self) -> bool:
        return bool(self._loading)

    def poll(self, results: Results, scheduled: Collection[str]) -> None:
        """``scheduled``: requests of the step that follows; vLLM takes back what was computed for
        one whose peer is gone only in a step that it is in."""
        refused, self._refused = self._refused, {}
        for request_id, reason in refused.items():
            self._reject(request_id, reason, results)
        for event in self._importer.poll():
            match event:
                case Admitted():
                    try:
                        self._admitted(event)
                    except ValueError as error:
                        self._importer.release(event.request_id)
                        self._reject(event.request_id, str(error), results)
                        continue
                    if event.pages_total == 0:
                        self._complete(event.request_id, results)
                case Landed():
                    try:
                        self._landed(event, results)
                    finally:
                        event.done()
                case Lost():
                    self._lost(event, results)
        for request_id in [name for name in self._gone if name in scheduled]:
            results.invalid_blocks.add(self._gone.pop(request_id))

    def _reject(self, request_id: str, reason: str, results: Results) -> None:
        self._rejected += 1
        self._lost(Lost(request_id, reason), results)

    def _admitted(self, event: Admitted) -> None:
        load = self._loading.get(event.request_id)
        if load is None:
            return
        admission = Admission.decode(event.blob)
        order, g = load.order, self._session.engine.tables.geometry
        if event.n_tokens != order.tokens or admission.selection.length != order.tokens:
            raise ValueError(
                f"the export is of a prompt of {event.n_tokens} tokens, this one has {order.tokens}"
            )
        admission.selection.check(g.layers, g.heads, g.blocks_for(order.tokens))
        blocks = np.array(order.blocks[order.first :], np.int32)
        tail = Admission(
            admission.selection,
            admission.low[:, order.first :],
            admission.high[:, order.first :],
            admission.scale[:, order.first :],
        )
        tail.install(self._session.engine.tables, blocks)
        load.admission = admission
        engine = self._session.engine
        engine.statistics.moved_bytes["remote", "host", "admission"] += len(event.blob)
        whole = len(order.blocks) * engine.tables.geometry.block_bytes
        engine.statistics.dense_transfer_bytes += whole

    def _landed(self, event: Landed, results: Results) -> None:
        load = self._loading.get(event.request_id)
        order = load.order if load is not None else self._remote.get(event.request_id)
        engine = self._session.engine
        if order is None or (load is not None and load.admission is None):
            engine.statistics.stale += len(event.pages)
        else:
            self._store(event, order)
        if not event.last:
            return
        self._fetching.discard(event.request_id)
        if load is not None:
            self._complete(event.request_id, results)

    def _complete(self, request_id: str, results: Results) -> None:
        """All that an admission sends is here."""
        load = self._loading.get(request_id)
        if load is None or load.admission is None:
            return
        del self._loading[request_id]
        results.received.add(request_id)
        if load.order.whole or load.cancelled:
            self._importer.release(request_id)
        if not load.cancelled and not load.order.whole:
            selection = load.admission.selection
            self._session.engine.requests.adopt(request_id, selection, remote=True)
            self._remote[request_id] = load.order

    def _store(self, event: Landed, order: LoadOrder) -> None:
        pages = np.array(event.pages, np.int32, order="C")
        blocks = np.array(order.blocks, np.int32)
        mine = (pages[:, 2] >= order.first) & (pages[:, 2] < len(blocks))
        data = event.data
        if not mine.all():
            pages, data = pages[mine], np.ascontiguousarray(event.data[mine])
        pages[:, 2] = blocks[pages[:, 2]]
        self._session.engine.land(event.request_id, pages, data.reshape(-1), event.reason.value)

    def _lost(self, event: Lost, results: Results) -> None:
        logger.warning("KV of request %s is lost: %s", event.request_id, event.reason)
        load = self._loading.pop(event.request_id, None)
        if load is not None:
            results.received.add(event.request_id)
            if not load.cancelled:
                results.failed.add(event.request_id)
            return
        order = self._remote.pop(event.request_id, None)
        if order is not None:
            self._fetching.discard(event.request_id)
            self._session.engine.requests.lose(event.request_id)
            self._gone[event.request_id] = order.blocks[order.first]

    def stats(self) -> dict[str, Any]:
        """Counters since the last call; the bytes are counted where pages land."""
        now, old = self._importer.counters(), self._counted
        self._counted = now
        rejected, self._rejected = self._rejected, 0
        counts = {
            key(Metric.STALE_READS): now.stale_pages - (old.stale_pages if old else 0),
            key(Metric.REFUSED_TRANSFERS, "reader"): rejected
            + now.refused
            - (old.refused if old else 0),
            key(Metric.REFUSED_TRANSFERS, "lost"): now.lost - (old.lost if old else 0),
        }
        data: dict[str, Any] = {name: value for name, value in counts.items() if value}
        if now.bytes_per_second and (old is None or now.bytes_per_second != old.bytes_per_second):
            data[key(Metric.LINK_BANDWIDTH, "network")] = now.bytes_per_second
        return data

    def close(self) -> None:
        self._importer.close()


def _fingerprint(session: Session, layout: PageLayout, weights: str) -> str:
    """Equal for two engines whose pages can be copied into each other and mean the same, readable
    where not."""
    g = session.engine.tables.geometry
    dtype = session.tiers.fast.dtype
    return (
        f"{g.layers} layers, {g.heads} KV heads, head size {g.dim}, block {g.block}, {dtype}, "
        f"layout {layout.fingerprint()}, weights {weights}"
    )


def open_owner(payload: EnginePayload, session: Session, layout: PageLayout, rank: int) -> Owner:
    """Listen for decode engines. Raises TransferError when the port or NIXL is not available."""
    settings = TransferSettings.from_config(payload.config.transfer, rank)
    fingerprint = _fingerprint(session, layout, payload.weights)
    exporter = Exporter(settings, HostPages(session), fingerprint)
    exporter.start()
    return Owner(session, exporter)


def open_reader(payload: EnginePayload, session: Session, layout: PageLayout, rank: int) -> Reader:
    """Prepare to read from prefill engines. Raises TransferError without NIXL."""
    g = session.engine.tables.geometry
    settings = replace(
        TransferSettings.from_config(payload.config.transfer),
        most_pages=g.layers * g.heads * g.host_blocks,
    )
    fingerprint = _fingerprint(session, layout, payload.weights)
    importer = Importer(settings, fingerprint, g.page_bytes)
    importer.start()
    return Reader(session, importer, rank)
