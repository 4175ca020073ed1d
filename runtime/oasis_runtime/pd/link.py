"""A reader's connection to one owner. Runs on the transfer thread alone.

Each link has its own NIXL agent. When the owner is lost, the agent is destroyed, and from then
on no late WRITE of that owner can reach the landing buffer: that is what lets quarantined
regions be used again.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import zmq

from oasis_runtime.pd import protocol
from oasis_runtime.pd.agent import Agent, PeerGoneError
from oasis_runtime.pd.bandwidth import MovingRate
from oasis_runtime.pd.counters import ReaderTally
from oasis_runtime.pd.endpoint import endpoint
from oasis_runtime.pd.landing import Region
from oasis_runtime.pd.landing_buffer import LandingBuffer
from oasis_runtime.pd.lease import HeldLeases
from oasis_runtime.pd.reading import (
    Piece,
    Reading,
    ReadingState,
    admission_pages,
    blob_pieces,
    page_pieces,
)
from oasis_runtime.pd.settings import TransferSettings
from oasis_runtime.pd.types import (
    Admitted,
    Bytes,
    Event,
    Landed,
    Lost,
    Pages,
    Peer,
    Reason,
    TransferError,
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
        self._poller = poller
        self._agent = agent
        self._landing = landing
        self._emit = emit
        self._fetch_taken = fetch_taken
        self._tally = tally
        self._socket = context.socket(zmq.DEALER)
        self._socket.ipv6 = ":" in peer.host
        self._socket.maxmsgsize = protocol.MAX_MESSAGE_BYTES
        try:
            self._socket.connect(endpoint(peer.host, peer.port))
        except zmq.ZMQError as error:
            self._socket.close(linger=0)
            raise TransferError(f"{peer} is not an address: {error.strerror}") from error
        self._monitor = self._socket.get_monitor_socket(zmq.Event.DISCONNECTED)
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._monitor, zmq.POLLIN)
        self.closed = False
        self._readings: dict[str, Reading] = {}
        self._unsent: list[Reading] = []
        self._demand: deque[Piece] = deque()
        self._bulk: deque[Piece] = deque()
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
        if self._held is not None:
            self._post(protocol.Release([reading.holding]))

    def under_way(self) -> bool:
        """Whether a WRITE may be landing, which only progress lets happen."""
        return any(isinstance(op, _FetchOp) for op in self._ops.values())

    @property
    def readings(self) -> int:
        return len(self._readings)

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
            while queue and now - queue[0].queued >= self._settings.lease_seconds:
                piece = self._pop(queue)
                if piece.reading.alive:
                    self._lose(piece.reading, "no landing memory became free for a whole lease")
        if now >= self._next_beat:
            self._next_beat = now + self._beat_seconds
            readings = [r for r in self._readings.values() if r.leased]
            number = self._track(_RenewOp(now, readings))
            self._post(protocol.Renew(number, [r.holding for r in readings]))

    def _receive(self) -> bool:
        worked = False
        while not self.closed:
            try:
                data = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                break
            worked = True
            try:
                self._handle(protocol.decode_from_owner(data))
            except protocol.ProtocolError as error:
                self._tally.malformed += 1
                self.fail(str(error))
        if not self.closed and self._monitor.poll(0):
            # The owner may have restarted, and then knows nothing of what was read there.
            self.fail("it closed the connection")
            worked = True
        return worked

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
            if reading.alive:
                self._ask_admission(reading)
        self._unsent = []

    def _ask_admission(self, reading: Reading) -> None:
        op = self._track(_AdmitOp(time.monotonic(), reading))
        self._post(protocol.Admit(op, reading.holding, reading.mode))

    def _admission(self, op: _AdmitOp, message: protocol.Admission) -> None:
        self._answered = max(self._answered, op.sent)
        reading = op.reading
        if not reading.alive:
            # Released before the owner had even offered it.
            self._post(protocol.Release([reading.holding]))
            return
        try:
            pages = admission_pages(reading.mode, message)
        except ValueError as error:
            self.fail(str(error))
            return
        now = time.monotonic()
        if self._held is not None:
            self._held.hold(reading.request_id, op.sent)
        reading.leased = True
        reading.n_tokens = message.n_tokens
        reading.blob = bytearray(message.blob_bytes)
        reading.blob_missing = message.blob_bytes
        reading.pages_total = reading.pages_missing = len(pages)
        chunk = self._settings.chunk_bytes
        self._bulk.extend(blob_pieces(reading, message.blob_bytes, chunk, now))
        self._bulk.extend(page_pieces(reading, pages, self._page_bytes, chunk, 0, now))
        self._admit_when_whole(reading)

    def _admit_when_whole(self, reading: Reading) -> None:
        if reading.admitted or reading.blob_missing:
            return
        reading.admitted = True
        blob, reading.blob = bytes(reading.blob), bytearray()
        total = reading.pages_total
        self._emit(reading, Admitted(reading.request_id, reading.n_tokens, blob, total))
        for landed in reading.early:
            self._emit(reading, landed)
        reading.early = []

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
            elif self._held is not None:
                self._held.acknowledge(reading.request_id, op.sent)

    # Asking for pieces, and their landing.

    def _pop(self, queue: deque[Piece]) -> Piece:
        piece = queue.popleft()
        if piece.ticket and piece.last:
            self._fetch_taken()
        return piece

    def _ask(self, queue: deque[Piece], reason: Reason) -> bool:
        """Sends as many fetches as window and landing memory allow; True when any."""
        open_ops = sum(isinstance(o, _FetchOp) and o.reason is reason for o in self._ops.values())
        asked = False
        while open_ops < self._settings.window:
            while queue and not queue[0].reading.alive:
                self._pop(queue)
            if not queue:
                break
            count, nbytes = 0, 0
            for piece in queue:
                if count and nbytes + piece.nbytes > self._settings.chunk_bytes:
                    break
                count += 1
                nbytes += piece.nbytes if piece.reading.alive else 0
            region = self._landing.regions.allocate(nbytes, self._agent.name)
            if region is None:
                break
            pieces = [p for p in (self._pop(queue) for _ in range(count)) if p.reading.alive]
            op = self._track(_FetchOp(time.monotonic(), reason, region, pieces))
            address = self._landing.address(region)
            items = [piece.item for piece in pieces]
            self._post(protocol.Fetch(op, reason, address, nbytes, items))
            open_ops += 1
            asked = True
        return asked

    def _fetched(self, op: _FetchOp, message: protocol.Fetched) -> None:
        self._answered = max(self._answered, op.sent)
        regions = self._landing.regions
        view = self._landing.view(op.region)
        landed = regions.land(op.region)
        refused = {r.index: r.reason for r in message.refused}
        arrived: list[tuple[Piece, Bytes]] = []
        offset = 0
        for index, piece in enumerate(op.pieces):
            if index in refused:
                self._tally.refused += 1
                if piece.reading.alive:
                    self._lose(piece.reading, refused[index])
                continue
            data = view[offset : offset + piece.nbytes]
            offset += piece.nbytes
            if not piece.reading.alive:
                self._throw_away(piece)
                continue
            if self._held is not None:
                self._held.acknowledge(piece.reading.request_id, op.sent)
            self._count(op.reason, piece.nbytes)
            if piece.pages is None:
                self._take_blob(piece, data)
            else:
                arrived.append((piece, data))
        if offset >= _LARGE_WRITE_BYTES:
            self._rate.add(offset, message.wire_us / 1e6)
            self._tally.bytes_per_second = self._rate.bytes_per_second
        if landed and not arrived:
            regions.release(op.region)
        claims = self._landing.claims(op.region, len(arrived))
        for (piece, data), claim in zip(arrived, claims, strict=True):
            self._hand_out(piece, data, op.reason, claim)

    def _throw_away(self, piece: Piece) -> None:
        pages = 0 if piece.pages is None else len(piece.pages)
        if piece.reading.state is ReadingState.LOST:
            self._tally.stale_pages += pages
        else:
            self._tally.abandoned_pages += pages

    def _take_blob(self, piece: Piece, data: Bytes) -> None:
        assert isinstance(piece.item, protocol.BlobItem)
        start = piece.item.offset
        piece.reading.blob[start : start + piece.nbytes] = data.tobytes()
        piece.reading.blob_missing -= piece.nbytes
        self._admit_when_whole(piece.reading)

    def _hand_out(
        self, piece: Piece, data: Bytes, reason: Reason, done: Callable[[], None]
    ) -> None:
        reading = piece.reading
        assert piece.pages is not None
        last = piece.last
        if reason is Reason.ADMISSION:
            # WRITEs may finish in another order than they were asked for.
            reading.pages_missing -= len(piece.pages)
            last = reading.pages_missing == 0
        shaped = data.reshape(len(piece.pages), self._page_bytes)
        landed = Landed(reading.request_id, reason, piece.ticket, piece.pages, shaped, last, done)
        if reading.admitted:
            self._emit(reading, landed)
        else:
            reading.early.append(landed)

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
        reading.state = state
        del self._readings[reading.request_id]
        for landed in reading.early:
            landed.done()
        reading.early = []
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
        """Releases all exports and disconnects."""
        if self._held is not None and self._readings:
            self._post(protocol.Release([r.holding for r in self._readings.values()]))
        for reading in list(self._readings.values()):
            self._drop(reading, ReadingState.RELEASED)
        self._disconnect()

    def _disconnect(self) -> None:
        if self.closed:
            return
        self.closed = True
        for queue in (self._demand, self._bulk):
            while queue:
                self._pop(queue)
        self._agent.close()
        self._landing.regions.peer_gone(self._agent.name)
        self._poller.unregister(self._socket)
        self._poller.unregister(self._monitor)
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=200)

    def _track(self, op: _Op) -> int:
        number = self._next_op
        self._next_op += 1
        self._ops[number] = op
        return number

    def _post(self, message: protocol.FromReader) -> None:
        if self.closed:
            return
        try:
            self._socket.send(protocol.encode(message), zmq.NOBLOCK)
        except zmq.Again:
            self.fail("it takes no messages")
