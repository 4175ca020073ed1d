"""The reader's public side: admits requests from prefill engines, fetches their pages."""

from __future__ import annotations

import dataclasses
import uuid
from collections import deque
from collections.abc import Callable

import zmq

from oasis_runtime.pd import protocol
from oasis_runtime.pd.agent import Agent
from oasis_runtime.pd.counters import ReaderCounters, ReaderTally
from oasis_runtime.pd.landing_buffer import GiveBack, LandingBuffer
from oasis_runtime.pd.link import Emit, OwnerLink
from oasis_runtime.pd.reading import Reading
from oasis_runtime.pd.settings import TransferSettings
from oasis_runtime.pd.thread import Session, TransferThread
from oasis_runtime.pd.types import Event, Landed, Lost, Mode, Pages, Peer, TransferError


class _ReaderSession(Session):
    """All links of a reader, and the landing buffer that they share."""

    def __init__(
        self,
        poller: zmq.Poller,
        settings: TransferSettings,
        fingerprint: str,
        page_bytes: int,
        emit: Emit,
        give_back: GiveBack,
        tally: ReaderTally,
    ) -> None:
        self._poller = poller
        self._settings = settings
        self._fingerprint = fingerprint
        self._page_bytes = page_bytes
        self._emit = emit
        self._tally = tally
        self.landing = LandingBuffer(settings.landing_bytes, give_back)
        self._links: dict[Peer, OwnerLink] = {}
        self._of_request: dict[str, OwnerLink] = {}
        self.fetches_taken = 0
        # The first agent of a process takes half a second, later ones 16 ms: make it now.
        self._spare: Agent | None = self._new_agent()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()

    def _new_agent(self) -> Agent:
        return Agent(f"reader-{uuid.uuid4().hex[:12]}", self.landing.memory)

    # Session

    def step(self) -> bool:
        worked = False
        for peer, link in list(self._links.items()):
            worked |= link.step()
            if link.closed:
                del self._links[peer]
        return worked

    def under_way(self) -> bool:
        return any(link.under_way() for link in self._links.values())

    def shut(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()
        if self._spare is not None:
            self._spare.close()
        self._context.term()

    # Commands

    def admit(self, peer: Peer, reading: Reading) -> None:
        link = self._links.get(peer)
        if link is None or link.closed:
            try:
                link = self._connect(peer)
            except TransferError as error:
                self._tally.lost += 1
                self._emit(reading, Lost(reading.request_id, str(error)))
                return
            self._links[peer] = link
        self._of_request[reading.request_id] = link
        link.admit(reading)

    def _connect(self, peer: Peer) -> OwnerLink:
        agent, self._spare = self._spare or self._new_agent(), None
        try:
            return OwnerLink(
                peer,
                self._settings,
                self._fingerprint,
                self._page_bytes,
                self._context,
                self._poller,
                agent,
                self.landing,
                self._ended,
                self._fetch_taken,
                self._tally,
            )
        except TransferError:
            self._spare = agent
            raise

    def _ended(self, reading: Reading, event: Event) -> None:
        if isinstance(event, Lost):
            self._of_request.pop(event.request_id, None)
        self._emit(reading, event)

    def _fetch_taken(self) -> None:
        self.fetches_taken += 1

    def fetch(self, request_id: str, pages: Pages, ticket: int) -> None:
        link = self._of_request.get(request_id)
        if link is None:
            # Lost meanwhile; its event is on the way.
            self._fetch_taken()
            return
        link.fetch(request_id, pages, ticket)

    def release(self, request_id: str) -> None:
        link = self._of_request.pop(request_id, None)
        if link is not None:
            link.release(request_id)

    @property
    def starved(self) -> bool:
        return any(link.starved for link in list(self._links.values()))

    @property
    def peers(self) -> int:
        return len(self._links)


class Importer:
    """Reads requests that prefill engines offer.

    All methods are for one thread, the engine's; none waits except ``start`` and ``close``.
    """

    def __init__(self, settings: TransferSettings, fingerprint: str, page_bytes: int) -> None:
        """``fingerprint`` and ``page_bytes`` must be those of the prefill engines.

        Raises ValueError when a page does not fit into one WRITE.
        """
        if page_bytes > settings.chunk_bytes:
            raise ValueError(
                f"a page of {page_bytes} bytes does not fit a WRITE of {settings.chunk_bytes} "
                "bytes; raise transfer.landing_bytes"
            )
        self._settings = settings
        self._events: deque[tuple[Reading, Event]] = deque()
        self._live: dict[str, Reading] = {}
        self._tally = ReaderTally()
        self._fetches_asked = 0
        self._session: _ReaderSession | None = None

        def make(poller: zmq.Poller) -> _ReaderSession:
            self._session = _ReaderSession(
                poller, settings, fingerprint, page_bytes, self._emit, self._give_back, self._tally
            )
            return self._session

        self._thread = TransferThread("oasis-importer", make)

    def start(self) -> None:
        """Makes the landing buffer and the first agent. Raises TransferError without NIXL."""
        self._thread.start()

    def _emit(self, reading: Reading, event: Event) -> None:
        self._events.append((reading, event))

    def _give_back(self, share: Callable[[], None]) -> None:
        # Free memory is only news to a thread that waits for some. In this order: the thread
        # looks into its mailbox after it has found that it is starved.
        self._thread.post(lambda _: share(), wake=False)
        if self._session is not None and self._session.starved:
            self._thread.wake()

    def admit(
        self,
        request_id: str,
        peer: Peer,
        remote_request_id: str,
        generation: int,
        digest: bytes,
        mode: Mode = Mode.HOT,
    ) -> None:
        """Starts to read an export: ends in ``Admitted`` and its ``Landed``, or in ``Lost``, as for
        one whose prompt has another ``digest`` (:func:`oasis_runtime.pd.digest.prompt_digest`).

        Raises ValueError while ``request_id`` is being read already and for an id or generation
        that cannot be sent, TransferError when the transfer thread has died.
        """
        self._thread.check()
        protocol.check_holding(remote_request_id, generation)
        if request_id in self._live:
            raise ValueError(f"request {request_id} is being read already")
        holding = protocol.Holding(remote_request_id, generation)
        reading = Reading(request_id, holding, digest, mode)
        self._live[request_id] = reading
        self._thread.post(lambda session: session.admit(peer, reading))

    def fetch(self, request_id: str, pages: Pages) -> int | None:
        """Asks for ``pages`` (int32[n, 3], n > 0); the ticket that their ``Landed`` carry.

        Fetches that are asked for in one engine step travel together. None when too many wait
        for landing memory: ask again later. Raises ValueError for a request that is not being
        read; one that is lost, but was not yet reported so by ``poll``, is ignored.
        """
        if request_id not in self._live:
            raise ValueError(f"request {request_id} is not being read")
        if len(pages) == 0:
            raise ValueError("a fetch needs at least one page")
        if self._session is None:
            raise TransferError("the importer has not been started")
        if self._fetches_asked - self._session.fetches_taken >= self._settings.queue_limit:
            return None
        self._fetches_asked += 1
        ticket = self._fetches_asked
        self._thread.post(lambda session: session.fetch(request_id, pages, ticket))
        return ticket

    def release(self, request_id: str) -> None:
        """Ends the reading of a request, at its owner too; no event of it comes any more.

        Ignored for a request that is not being read (its loss may have been reported).
        """
        if self._live.pop(request_id, None) is not None:
            self._thread.post(lambda session: session.release(request_id))

    def poll(self) -> list[Event]:
        """What happened since the last call. Raises TransferError when the thread has died."""
        self._thread.check()
        events: list[Event] = []
        while self._events:
            reading, event = self._events.popleft()
            if self._live.get(event.request_id) is reading:
                if isinstance(event, Lost):
                    del self._live[event.request_id]
                events.append(event)
            elif isinstance(event, Landed):
                event.done()
        return events

    def counters(self) -> ReaderCounters:
        session = self._session
        regions = None if session is None else session.landing.regions
        return ReaderCounters(
            **dataclasses.asdict(self._tally),
            landing_used_bytes=regions.used if regions else 0,
            landing_quarantined_bytes=regions.quarantined if regions else 0,
            requests=len(self._live),
            peers=session.peers if session else 0,
        )

    def close(self) -> None:
        """Releases all exports and stops. Views of landed pages stay readable."""
        self._thread.close()
