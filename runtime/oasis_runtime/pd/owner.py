"""The owner's side of the protocol: who reads, what is leased, which WRITE is under way.

Runs on the transfer thread alone. Every message about an export is checked against its lease and
generation when it is packed, and again after packing, before the WRITE is posted: an export that
the lease table has given up is never sent. What has been packed is a copy, so an export may end
while a WRITE of it is under way; a frozen reader can therefore not hold an export beyond its
lease.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from oasis_runtime.pd import protocol
from oasis_runtime.pd.agent import Agent, PeerGoneError, Write
from oasis_runtime.pd.counters import OwnerTally
from oasis_runtime.pd.landing import Region, RegionAllocator
from oasis_runtime.pd.lease import Clock, LeaseTable
from oasis_runtime.pd.memory import RegisteredMemory
from oasis_runtime.pd.settings import TransferSettings
from oasis_runtime.pd.types import (
    Ended,
    EndReason,
    Export,
    Mode,
    PageSource,
    Reason,
    TransferError,
    decode_pages,
    encode_pages,
)

_log = logging.getLogger(__name__)

Send = Callable[[bytes, protocol.FromOwner], None]
"""Sends a message to the reader with this socket identity; never waits."""

_FETCHES_QUEUED = 4096
_CHECKS_PER_STEP = 64


@dataclass(slots=True, eq=False)
class _Reader:
    identity: bytes
    agent: str
    heard: float
    wire_since: float = 0.0
    """When the last WRITE to this reader was done: the next one had the wire from then on."""


@dataclass(frozen=True, slots=True, eq=False)
class _Fetch:
    reader: _Reader
    message: protocol.Fetch
    asked: float


@dataclass(frozen=True, slots=True, eq=False)
class _Writing:
    fetch: _Fetch
    write: Write
    region: Region
    refused: list[protocol.RefusedItem]


@dataclass(frozen=True, slots=True, eq=False)
class _Early:
    """An admission that came before its export."""

    reader: _Reader
    message: protocol.Admit
    until: float


@dataclass(slots=True)
class _Packed:
    nbytes: int = 0
    sent: list[protocol.Holding] = field(default_factory=list)
    refused: list[protocol.RefusedItem] = field(default_factory=list)


class Owner:
    """Serves exports to readers."""

    def __init__(
        self,
        settings: TransferSettings,
        source: PageSource,
        fingerprint: str,
        agent: Agent,
        memory: RegisteredMemory,
        send: Send,
        ended: Callable[[Ended], None],
        tally: OwnerTally,
        clock: Clock = time.monotonic,
    ) -> None:
        self._settings = settings
        self._source = source
        self._fingerprint = fingerprint
        self._agent = agent
        self._memory = memory
        self._regions = RegionAllocator(memory.nbytes)
        self._send = send
        self._ended = ended
        self._tally = tally
        self._clock = clock
        self._leases = LeaseTable(settings.lease_seconds, clock)
        self._exports: dict[str, Export] = {}
        self._readers: dict[bytes, _Reader] = {}
        self._early: list[_Early] = []
        self._fetches: deque[_Fetch] = deque()
        self._writing: list[_Writing] = []
        self._stuck: list[Write] = []

    @property
    def readers(self) -> int:
        return len(self._readers)

    @property
    def writes_under_way(self) -> int:
        return len(self._writing)

    def under_way(self) -> bool:
        return bool(self._writing or self._fetches)

    # What the owner's engine asks for.

    def offer(self, export: Export) -> None:
        self._leases.grant(export.request_id, export.generation)
        self._exports[export.request_id] = export
        self._tally.offered += 1
        waiting = [e for e in self._early if e.message.holding.request == export.request_id]
        for early in waiting:
            self._early.remove(early)
            self._admit(early.reader, early.message, patient=False)

    def withdraw(self, request_id: str) -> None:
        export = self._exports.get(request_id)
        if export is not None and self._leases.end(request_id, export.generation):
            self._tally.withdrawn += 1
            self._end(request_id, EndReason.WITHDRAWN)

    def _end(self, request_id: str, reason: EndReason) -> None:
        export = self._exports.pop(request_id)
        self._ended(Ended(request_id, export.generation, reason))

    # What time asks for.

    def step(self) -> bool:
        """Advances WRITEs, packs the next fetch, lets leases and deadlines run out."""
        worked = self._advance_writes()
        worked |= self._start_next()
        now = self._clock()
        for request_id, _ in self._leases.expire():
            self._tally.expired += 1
            self._end(request_id, EndReason.EXPIRED)
        for early in [e for e in self._early if now >= e.until]:
            self._early.remove(early)
            self._admit(early.reader, early.message, patient=False)
        for reader in list(self._readers.values()):
            if now - reader.heard > self._settings.lease_seconds:
                self._lose(reader, "it has been silent for a whole lease")
        self._stuck = [write for write in self._stuck if not write.abandon()]
        return worked

    # What readers ask for.

    def receive(self, identity: bytes, data: bytes) -> None:
        """Handles one message of the reader with this socket identity."""
        try:
            message = protocol.decode_from_reader(data)
        except protocol.VersionMismatchError as error:
            self._tally.refused += 1
            self._send(identity, protocol.Unwelcome(str(error)))
            return
        except protocol.ProtocolError as error:
            self._tally.malformed += 1
            _log.warning("dropped a message on the transfer port: %s", error)
            return
        if isinstance(message, protocol.Hello):
            self._greet(identity, message)
            return
        reader = self._readers.get(identity)
        if reader is None:
            self._send(
                identity, protocol.Unwelcome("this engine does not know the reader (any more)")
            )
            return
        reader.heard = self._clock()
        match message:
            case protocol.Admit():
                self._admit(reader, message, patient=True)
            case protocol.Fetch():
                self._enqueue(reader, message)
            case protocol.Renew():
                unknown = [
                    h.request
                    for h in message.holdings
                    if not self._leases.extend(h.request, h.generation)
                ]
                self._send(identity, protocol.Renewed(message.op, unknown))
            case protocol.Release():
                for holding in message.holdings:
                    if self._leases.end(holding.request, holding.generation):
                        self._tally.released += 1
                        self._end(holding.request, EndReason.RELEASED)

    def _greet(self, identity: bytes, hello: protocol.Hello) -> None:
        reason = None
        if hello.fingerprint != self._fingerprint:
            reason = (
                f"the reader's KV layout is {hello.fingerprint}, this engine's is "
                f"{self._fingerprint}; both roles must run the same model and configuration"
            )
        elif hello.page_bytes != self._source.page_bytes:
            reason = (
                f"the reader's pages have {hello.page_bytes} bytes, this engine's "
                f"{self._source.page_bytes}; both roles need the same block size and dtype"
            )
        elif any(reader.agent == hello.agent for reader in self._readers.values()):
            reason = f"another reader is connected as {hello.agent}"
        else:
            try:
                named = self._agent.add_peer(hello.metadata)
            except TransferError as error:
                reason = str(error)
            else:
                if named != hello.agent:
                    self._agent.forget_peer(named)
                    reason = f"the metadata is of agent {named}, not of {hello.agent}"
        if reason is not None:
            self._tally.refused += 1
            _log.warning("refused a reader: %s", reason)
            self._send(identity, protocol.Unwelcome(reason))
            return
        previous = self._readers.get(identity)
        if previous is not None:
            self._lose(previous, "it said hello again")
        self._readers[identity] = _Reader(identity, hello.agent, self._clock())
        self._send(identity, protocol.Welcome(self._agent.name, self._settings.lease_seconds))

    def _refuse(self, reader: _Reader, op: int, reason: str) -> None:
        self._tally.refused += 1
        self._send(reader.identity, protocol.Refused(op, reason))

    def _admit(self, reader: _Reader, message: protocol.Admit, patient: bool) -> None:
        holding = message.holding
        export = self._exports.get(holding.request)
        if export is None and patient:
            until = self._clock() + self._settings.offer_grace_seconds
            self._early.append(_Early(reader, message, until))
            return
        if export is None or not self._leases.extend(holding.request, holding.generation):
            reason = self._leases.refusal(holding.request, holding.generation)
            self._refuse(reader, message.op, reason or "the export has ended")
            return
        answer = protocol.Admission(
            op=message.op,
            n_tokens=export.n_tokens,
            layers=self._source.layers,
            kv_heads=self._source.kv_heads,
            blocks=len(export.block_ids),
            blob_bytes=len(export.blob),
            pages=encode_pages(export.hot) if message.mode is Mode.HOT else b"",
        )
        self._send(reader.identity, answer)

    def _enqueue(self, reader: _Reader, message: protocol.Fetch) -> None:
        if message.nbytes > self._regions.capacity:
            reason = (
                f"{message.nbytes} bytes do not fit this engine's send buffer of "
                f"{self._regions.capacity} bytes; both sides need the same transfer.landing_bytes"
            )
            self._refuse(reader, message.op, reason)
        elif len(self._fetches) >= _FETCHES_QUEUED:
            self._refuse(reader, message.op, "too many fetches wait for the send buffer")
        else:
            for item in message.items:
                self._leases.extend(item.holding.request, item.holding.generation)
            self._fetches.append(_Fetch(reader, message, self._clock()))

    # Packing and writing.

    def _start_next(self) -> bool:
        if not self._fetches:
            return False
        fetch = self._fetches[0]
        if fetch.message.nbytes == 0:
            self._fetches.popleft()
            self._refuse(fetch.reader, fetch.message.op, "a fetch of no bytes")
            return True
        region = self._regions.allocate(fetch.message.nbytes, fetch.reader.agent)
        if region is None:
            return False
        self._fetches.popleft()
        packed = self._pack(fetch.message, region)
        # Packing takes time: an export may have run out of its lease meanwhile.
        while any(self._leases.refusal(h.request, h.generation) for h in packed.sent):
            packed = self._pack(fetch.message, region)
        self._tally.refused += len(packed.refused)
        if packed.nbytes == 0:
            self._drop(region)
            answer = protocol.Fetched(fetch.message.op, packed.refused, 0)
            self._send(fetch.reader.identity, answer)
            return True
        part = Region(region.offset, packed.nbytes)
        try:
            write = self._agent.write(part, fetch.reader.agent, fetch.message.address)
        except PeerGoneError as error:
            self._drop(region)
            self._lose(fetch.reader, str(error))
        except TransferError as error:
            self._drop(region)
            self._refuse(fetch.reader, fetch.message.op, str(error))
        else:
            self._writing.append(_Writing(fetch, write, region, packed.refused))
        return True

    def _drop(self, region: Region) -> None:
        self._regions.land(region)
        self._regions.release(region)

    def _pack(self, message: protocol.Fetch, region: Region) -> _Packed:
        packed = _Packed()
        out = self._memory.view[region.offset : region.offset + region.nbytes]
        for index, item in enumerate(message.items):
            holding = item.holding
            reason = self._leases.refusal(holding.request, holding.generation)
            if reason is None:
                try:
                    packed.nbytes += self._pack_item(item, out[packed.nbytes :])
                    packed.sent.append(holding)
                    continue
                except TransferError as error:
                    reason = str(error)
            packed.refused.append(protocol.RefusedItem(index, reason))
        return packed

    def _pack_item(
        self, item: protocol.Item, out: np.ndarray[tuple[int], np.dtype[np.uint8]]
    ) -> int:
        export = self._exports[item.holding.request]
        if isinstance(item, protocol.BlobItem):
            part = memoryview(export.blob)[item.offset : item.offset + item.length]
            if len(part) != item.length or item.length > len(out):
                raise TransferError(
                    f"bytes {item.offset} to {item.offset + item.length} are outside of the "
                    f"blob of {len(export.blob)} bytes or of the region asked for"
                )
            out[: item.length] = np.frombuffer(part, dtype=np.uint8)
            return item.length
        try:
            pages = decode_pages(item.pages)
        except ValueError as error:
            raise TransferError(str(error)) from error
        nbytes = len(pages) * self._source.page_bytes
        if nbytes > len(out):
            raise TransferError(f"{len(pages)} pages do not fit the region asked for")
        bounds = (self._source.layers, self._source.kv_heads, len(export.block_ids))
        if len(pages) and not bool(((pages >= 0) & (pages < np.array(bounds))).all()):
            raise TransferError(
                f"a page is outside of {bounds[0]} layers, {bounds[1]} KV heads and "
                f"{bounds[2]} blocks"
            )
        self._source.read_pages(export.block_ids, pages, out[:nbytes])
        return nbytes

    def _advance_writes(self) -> bool:
        finished = False
        for _ in range(_CHECKS_PER_STEP):
            if not self._writing:
                break
            for writing in list(self._writing):
                # An earlier loss may have taken this one along.
                if writing in self._writing and self._advance(writing):
                    finished = True
            if finished:
                break
        return finished

    def _advance(self, writing: _Writing) -> bool:
        reader = writing.fetch.reader
        try:
            done = writing.write.done()
        except PeerGoneError as error:
            self._tally.failed_writes += 1
            self._lose(reader, str(error))
            return True
        now = time.monotonic()
        elapsed = now - writing.write.posted_at
        if not done:
            if elapsed < self._settings.operation_seconds:
                return False
            self._tally.failed_writes += 1
            self._lose(reader, f"a WRITE was not taken within {elapsed:.1f} s")
            return True
        self._writing.remove(writing)
        self._drop(writing.region)
        message = writing.fetch.message
        wire_us = round((now - max(writing.write.posted_at, reader.wire_since)) * 1e6)
        reader.wire_since = now
        self._send(reader.identity, protocol.Fetched(message.op, writing.refused, wire_us))
        self._count(message, writing.refused)
        return True

    def _count(self, message: protocol.Fetch, refused: list[protocol.RefusedItem]) -> None:
        left_out = {r.index for r in refused}
        nbytes = 0
        for index, item in enumerate(message.items):
            if index in left_out:
                continue
            if isinstance(item, protocol.BlobItem):
                nbytes += item.length
            else:
                nbytes += len(item.pages) // 12 * self._source.page_bytes
        if message.reason is Reason.ADMISSION:
            self._tally.admission_bytes += nbytes
        else:
            self._tally.demand_bytes += nbytes

    def _lose(self, reader: _Reader, reason: str) -> None:
        """Disconnects a reader. Its exports live on until their leases end."""
        _log.warning("disconnected reader %s: %s", reader.agent, reason)
        self._tally.readers_lost += 1
        self._disconnect(reader)

    def _disconnect(self, reader: _Reader) -> None:
        self._readers.pop(reader.identity, None)
        self._early = [e for e in self._early if e.reader is not reader]
        self._fetches = deque(f for f in self._fetches if f.reader is not reader)
        for writing in [w for w in self._writing if w.fetch.reader is reader]:
            self._writing.remove(writing)
            self._regions.quarantine(writing.region)
            if not writing.write.abandon():
                self._stuck.append(writing.write)
        try:
            self._agent.forget_peer(reader.agent)
        except TransferError as error:
            _log.warning("%s", error)
        else:
            self._regions.peer_gone(reader.agent)

    def close(self) -> None:
        """Disconnects all readers."""
        for reader in list(self._readers.values()):
            self._disconnect(reader)
