"""A reader's connection to one owner. Runs on the transfer thread alone.

Each link has its own NIXL agent. When the owner is lost, the agent is destroyed, and from then
on no late WRITE of that owner can reach the landing buffer: that is what lets quarantined
regions be used again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import zmq

from oasis_runtime.pd import protocol
from oasis_runtime.pd.agent import Agent, PeerGoneError
from oasis_runtime.pd.bandwidth import MovingRate
from oasis_runtime.pd.channel import Channel
from oasis_runtime.pd.counters import ReaderTally
from oasis_runtime.pd.landing import Region
from oasis_runtime.pd.landing_buffer import LandingBuffer
from oasis_runtime.pd.lease import HeldLeases
from oasis_runtime.pd.piece_queue import PieceQueue
from oasis_runtime.pd.reading import (
    BlobPiece,
    PagesPiece,
    Piece,
    Reading,
    ReadingState,
    admission_pages,
    blob_pieces,
    check_size,
    page_pieces,
)
from oasis_runtime.pd.settings import TransferSettings
from oasis_runtime.pd.types import (
    Bytes,
    Event,
    Lost,
    Pages,
    Peer,
    Reason,
)

_log = logging.getLogger(__name__)

Emit = Callable[[Reading, Event], None]

_LARGE_WRITE_BYTES = 256 << 10
"""From here on a WRITE says something about bandwidth rather than about latency."""


@dataclass(slots=True, eq=False)
class _FetchOp:
    sent: float
    reason: Reason
    region: Region
    pieces: list[Piece]


@dataclass(frozen=True, slots=True, eq=False)
class _AdmitOp:
    sent: float
    reading: Reading


@dataclass(frozen=True, slots=True, eq=False)
class _RenewOp:
    sent: float
    readings: list[Reading]


_Op = _FetchOp | _AdmitOp | _RenewOp


class OwnerLink:
    """Reads exports of one owner. Raises TransferError when ``peer`` is not an address."""

    def __init__(
        self,
        peer: Peer,
        settings: TransferSettings,
        fingerprint: str,
        page_bytes: int,
        context: zmq.Context[zmq.Socket[bytes]],
        poller: zmq.Poller,
        agent: Agent,
        landing: LandingBuffer,
        emit: Emit,
        fetch_taken: Callable[[], None],
        tally: ReaderTally,
    ) -> None:
        self._peer = peer
        self._settings = settings
        self._page_bytes = page_bytes
        self._agent = agent
        self._landing = landing
        self._emit = emit
        self._tally = tally
        self._channel = Channel(peer, context, poller)
        self.closed = False
        self._readings: dict[str, Reading] = {}
        self._unsent: list[Reading] = []
        self._demand = PieceQueue(settings.chunk_bytes, fetch_taken)
        self._bulk = PieceQueue(settings.chunk_bytes, fetch_taken)
        self._ops: dict[int, _Op] = {}
        self._next_op = 1
        self._rate = MovingRate()
        self._held: HeldLeases | None = None
        self._silence_seconds = settings.connect_seconds
        self._answered = time.monotonic()
        self._next_beat = 0.0
        self._beat_seconds = settings.heartbeat_seconds
        self.starved = False
        """Whether a piece waits for landing memory."""
        self._post(protocol.Hello(fingerprint, page_bytes, agent.name, agent.metadata))

    # What the reader's engine asks for.

    def admit(self, reading: Reading) -> None:
        self._readings[reading.request_id] = reading
        if self._held is None:
            self._unsent.append(reading)
        else:
            self._ask_admission(reading)

    def fetch(self, request_id: str, pages: Pages, ticket: int) -> None:
        reading = self._readings[request_id]
        self._demand.extend(
            page_pieces(
                reading,
                pages,
                self._page_bytes,
                self._settings.chunk_bytes,
                ticket,
                time.monotonic(),
            )
        )

    def release(self, request_id: str) -> None:
        reading = self._readings[request_id]
        self._drop(reading, ReadingState.RELEASED)
        # Of an export whose admission has not come it is not known whose it is: the answer tells.
        if reading.leased:
            self._post(protocol.Release([reading.holding]))

    def under_way(self) -> bool:
        """Whether a WRITE may be landing, which only progress lets happen."""
        return any(isinstance(op, _FetchOp) for op in self._ops.values())

    # What time and the owner ask for.

    def step(self) -> bool:
        worked = self._receive()
        if self.closed:
            return True
        try:
            self._agent.progress()
        except PeerGoneError as error:
            self.fail(str(error))
            return True
        if self._held is not None:
            worked |= self._ask(self._demand, Reason.DEMAND)
            worked |= self._ask(self._bulk, Reason.ADMISSION)
            self.starved = bool(self._demand or self._bulk)
        self._watch()
        return worked

    def _watch(self) -> None:
        now = time.monotonic()
        if self.closed:
            return
        if now - self._answered >= self._silence_seconds:
            verb = "answered" if self._held is not None else "welcomed this engine"
            self.fail(f"it has not {verb} for {now - self._answered:.1f} s")
            return
        limit = self._settings.operation_seconds
        for op in self._ops.values():
            if now - op.sent >= limit and not isinstance(op, _RenewOp):
                self.fail(f"it has not done what was asked for within {limit:g} s")
                return
        if self._held is None:
            return
        for request_id in self._held.lost():
            self._lose(self._readings[request_id], "its lease has not been confirmed in time")
        for queue in (self._demand, self._bulk):
            # Landing memory may be short for a while, but not for longer than a lease.
            for piece in queue.overdue(now - self._settings.lease_seconds):
                if piece.reading.alive:
                    self._lose(piece.reading, "no landing memory became free for a whole lease")
        if now >= self._next_beat:
            self._next_beat = now + self._beat_seconds
            readings = [r for r in self._readings.values() if r.leased]
            number = self._track(_RenewOp(now, readings))
            self._post(protocol.Renew(number, [r.holding for r in readings]))

    def _receive(self) -> bool:
        worked = False
        try:
            while not self.closed and (message := self._channel.receive()) is not None:
                worked = True
                self._handle(message)
        except protocol.ProtocolError as error:
            self._tally.malformed += 1
            self.fail(str(error))
        if not self.closed and self._channel.broken():
            # The owner may have restarted, and then knows nothing of what was read there.
            self.fail("it closed the connection")
        return worked or self.closed

    def _handle(self, message: protocol.FromOwner) -> None:
        match message:
            case protocol.Welcome():
                self._welcome(message)
            case protocol.Unwelcome():
                self._tally.refused += 1
                self.fail(message.reason)
            case protocol.Admission():
                op = self._ops.pop(message.op, None)
                if isinstance(op, _AdmitOp):
                    self._admission(op, message)
            case protocol.Fetched():
                op = self._ops.pop(message.op, None)
                if isinstance(op, _FetchOp):
                    self._fetched(op, message)
            case protocol.Refused():
                self._refused(message)
            case protocol.Renewed():
                op = self._ops.pop(message.op, None)
                if isinstance(op, _RenewOp):
                    self._renewed(op, message)

    def _welcome(self, message: protocol.Welcome) -> None:
        now = time.monotonic()
        margin = message.lease_seconds / 10
        self._held = HeldLeases(message.lease_seconds, margin, time.monotonic)
        self._answered = now
        self._silence_seconds = message.lease_seconds - margin
        self._beat_seconds = min(self._settings.heartbeat_seconds, message.lease_seconds / 3)
        self._next_beat = now + self._beat_seconds
        for reading in self._unsent:
            self._ask_admission(reading)
        self._unsent = []

    def _ask_admission(self, reading: Reading) -> None:
        op = self._track(_AdmitOp(time.monotonic(), reading))
        self._post(protocol.Admit(op, reading.holding, reading.mode))

    def _admission(self, op: _AdmitOp, message: protocol.Admission) -> None:
        self._answered = max(self._answered, op.sent)
        reading = op.reading
        if message.digest != reading.digest:
            # Not released: another request may be on its way to read it.
            if reading.alive:
                self._tally.refused += 1
                self._lose(reading, "its export is of another prompt than this request's")
            return
        if not reading.alive:
            self._post(protocol.Release([reading.holding]))
            return
        try:
            check_size(message, self._settings.most_pages, self._page_bytes)
            pages = admission_pages(reading.mode, message)
        except ValueError as error:
            self.fail(str(error))
            return
        now = time.monotonic()
        if self._held is not None:
            self._held.hold(reading.request_id, op.sent)
        chunk = self._settings.chunk_bytes
        self._bulk.extend(blob_pieces(reading, message.blob_bytes, chunk, now))
        self._bulk.extend(page_pieces(reading, pages, self._page_bytes, chunk, 0, now))
        self._emit_all(reading, reading.open(message, len(pages)))

    def _emit_all(self, reading: Reading, events: list[Event]) -> None:
        for event in events:
            self._emit(reading, event)

    def _refused(self, message: protocol.Refused) -> None:
        op = self._ops.pop(message.op, None)
        self._tally.refused += 1
        if isinstance(op, _AdmitOp):
            if op.reading.alive:
                self._lose(op.reading, message.reason)
        elif isinstance(op, _FetchOp):
            if self._landing.regions.land(op.region):
                self._landing.regions.release(op.region)
            for piece in op.pieces:
                if piece.reading.alive:
                    self._lose(piece.reading, message.reason)

    def _renewed(self, op: _RenewOp, message: protocol.Renewed) -> None:
        self._answered = max(self._answered, op.sent)
        self._tally.round_trips += 1
        self._tally.round_trip_us += round((time.monotonic() - op.sent) * 1e6)
        unknown = set(message.unknown)
        for reading in op.readings:
            if not reading.alive:
                continue
            if reading.holding.request in unknown:
                self._lose(reading, "its lease has ended at the owner")
            else:
                self._confirm(reading, op.sent)

    # Asking for pieces, and their landing.

    def _ask(self, queue: PieceQueue, reason: Reason) -> bool:
        """Sends as many fetches as window and landing memory allow; True when any."""
        open_ops = sum(isinstance(o, _FetchOp) and o.reason is reason for o in self._ops.values())
        asked = False
        for _ in range(self._settings.window - open_ops):
            taken = queue.take(self._allocate)
            if taken is None:
                break
            region, pieces = taken
            op = self._track(_FetchOp(time.monotonic(), reason, region, pieces))
            address = self._landing.address(region)
            items = [piece.item for piece in pieces]
            self._post(protocol.Fetch(op, reason, address, region.nbytes, items))
            asked = True
        return asked

    def _allocate(self, nbytes: int) -> Region | None:
        return self._landing.regions.allocate(nbytes, self._agent.name)

    def _fetched(self, op: _FetchOp, message: protocol.Fetched) -> None:
        self._answered = max(self._answered, op.sent)
        view = self._landing.view(op.region)
        landed = self._landing.regions.land(op.region)
        refused = {r.index: r.reason for r in message.refused}
        for index, reason in refused.items():
            self._tally.refused += 1
            if index < len(op.pieces) and op.pieces[index].reading.alive:
                self._lose(op.pieces[index].reading, reason)
        arrived: list[tuple[PagesPiece, Bytes]] = []
        offset = 0
        for piece in (p for index, p in enumerate(op.pieces) if index not in refused):
            data = view[offset : offset + piece.nbytes]
            offset += piece.nbytes
            if not piece.reading.alive:
                self._throw_away(piece)
                continue
            self._confirm(piece.reading, op.sent)
            self._count(op.reason, piece.nbytes)
            if isinstance(piece, BlobPiece):
                self._emit_all(piece.reading, piece.reading.take_blob(piece.item, data))
            else:
                arrived.append((piece, data.reshape(len(piece.pages), self._page_bytes)))
        if offset >= _LARGE_WRITE_BYTES:
            self._rate.add(offset, message.wire_us / 1e6)
            self._tally.bytes_per_second = self._rate.bytes_per_second
        if landed and not arrived:
            self._landing.regions.release(op.region)
        claims = self._landing.claims(op.region, len(arrived))
        for (piece, pages), done in zip(arrived, claims, strict=True):
            events = piece.reading.take_pages(
                op.reason, piece.ticket, piece.pages, pages, piece.last, done
            )
            self._emit_all(piece.reading, events)

    def _throw_away(self, piece: Piece) -> None:
        pages = len(piece.pages) if isinstance(piece, PagesPiece) else 0
        if piece.reading.state is ReadingState.LOST:
            self._tally.stale_pages += pages
        else:
            self._tally.abandoned_pages += pages

    def _confirm(self, reading: Reading, sent: float) -> None:
        if self._held is not None:
            self._held.acknowledge(reading.request_id, sent)

    def _count(self, reason: Reason, nbytes: int) -> None:
        if reason is Reason.ADMISSION:
            self._tally.admission_bytes += nbytes
        else:
            self._tally.demand_bytes += nbytes

    # Ends.

    def _lose(self, reading: Reading, reason: str) -> None:
        self._tally.lost += 1
        self._drop(reading, ReadingState.LOST)
        told = f"request {reading.holding.request} at prefill engine {self._peer}: {reason}"
        self._emit(reading, Lost(reading.request_id, told))

    def _drop(self, reading: Reading, state: ReadingState) -> None:
        reading.end(state)
        del self._readings[reading.request_id]
        if self._held is not None:
            self._held.drop(reading.request_id)
        for op in self._ops.values():
            if (
                isinstance(op, _FetchOp)
                and any(piece.reading is reading for piece in op.pieces)
                and not any(piece.reading.alive for piece in op.pieces)
            ):
                self._landing.regions.quarantine(op.region)

    def fail(self, reason: str) -> None:
        """Gives the owner up: all its requests are lost, and no WRITE of it can land any more."""
        self._tally.peers_lost += 1
        _log.warning("gave up prefill engine %s: %s", self._peer, reason)
        for reading in list(self._readings.values()):
            self._lose(reading, reason)
        self._disconnect()

    def close(self) -> None:
        """Releases all exports that it was admitted to, and disconnects."""
        if leased := [r.holding for r in self._readings.values() if r.leased]:
            self._post(protocol.Release(leased))
        for reading in list(self._readings.values()):
            self._drop(reading, ReadingState.RELEASED)
        self._disconnect()

    def _disconnect(self) -> None:
        if self.closed:
            return
        self.closed = True
        for queue in (self._demand, self._bulk):
            queue.clear()
        self._agent.close()
        self._landing.regions.peer_gone(self._agent.name)
        self._channel.close()

    def _track(self, op: _Op) -> int:
        number = self._next_op
        self._next_op += 1
        self._ops[number] = op
        return number

    def _post(self, message: protocol.FromReader) -> None:
        if not self.closed and not self._channel.send(message):
            self.fail("it takes no messages")
