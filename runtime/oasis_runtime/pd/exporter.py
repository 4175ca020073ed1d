"""The owner's public side: offers exports, learns when they have ended."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections import deque

import zmq

from oasis_runtime.pd import protocol
from oasis_runtime.pd.agent import Agent
from oasis_runtime.pd.counters import OwnerCounters, OwnerTally
from oasis_runtime.pd.endpoint import endpoint
from oasis_runtime.pd.memory import RegisteredMemory
from oasis_runtime.pd.owner import Owner
from oasis_runtime.pd.settings import TransferSettings
from oasis_runtime.pd.thread import Session, TransferThread
from oasis_runtime.pd.types import Ended, Export, PageSource, TransferError

_MESSAGES_PER_STEP = 64


class _OwnerSession(Session):
    """Socket and agent of an :class:`Owner`."""

    def __init__(
        self,
        poller: zmq.Poller,
        settings: TransferSettings,
        source: PageSource,
        fingerprint: str,
        ended: deque[Ended],
        tally: OwnerTally,
    ) -> None:
        self._tally = tally
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        try:
            self.port = self._bind(settings)
            memory = RegisteredMemory(settings.landing_bytes)
            self._agent = Agent(f"owner-{uuid.uuid4().hex[:12]}", memory)
        except TransferError:
            self._context.destroy(linger=0)
            raise
        self.owner = Owner(
            settings, source, fingerprint, self._agent, memory, self._send, ended.append, tally
        )
        poller.register(self._socket, zmq.POLLIN)

    def _bind(self, settings: TransferSettings) -> int:
        self._socket.linger = 0
        self._socket.maxmsgsize = protocol.MAX_MESSAGE_BYTES
        self._socket.ipv6 = ":" in settings.host
        try:
            if settings.port == 0:
                return self._socket.bind_to_random_port(endpoint(settings.host, None))
            self._socket.bind(endpoint(settings.host, settings.port))
        except zmq.ZMQError as error:
            raise TransferError(
                f"cannot listen for readers on {settings.host}:{settings.port}: "
                f"{error.strerror}; set transfer.host to an address of this machine and "
                "transfer.port to a free port"
            ) from error
        return settings.port

    def _send(self, identity: bytes, message: protocol.FromOwner) -> None:
        # A ROUTER drops what it cannot deliver; the reader's deadlines deal with that.
        self._socket.send_multipart((identity, protocol.encode(message)))

    def step(self) -> bool:
        worked = False
        for _ in range(_MESSAGES_PER_STEP):
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            worked = True
            if len(frames) == 2:
                self.owner.receive(frames[0], frames[1])
            else:
                self._tally.malformed += 1
        self._agent.progress()
        return self.owner.step() or worked

    def under_way(self) -> bool:
        return self.owner.under_way()

    def shut(self) -> None:
        self.owner.close()
        self._agent.close()
        self._context.destroy(linger=0)


class Exporter:
    """Offers the KV of prompts to readers, under leases.

    All methods are for one thread, the engine's; none waits except ``start`` and ``close``.
    """

    def __init__(self, settings: TransferSettings, source: PageSource, fingerprint: str) -> None:
        """``fingerprint`` describes the KV layout; readers with another one are refused."""
        self._ended: deque[Ended] = deque()
        self._tally = OwnerTally()
        self._offered: dict[str, float] = {}
        self._session: _OwnerSession | None = None

        def make(poller: zmq.Poller) -> _OwnerSession:
            self._session = _OwnerSession(
                poller, settings, source, fingerprint, self._ended, self._tally
            )
            return self._session

        self._thread = TransferThread("oasis-exporter", make)

    def start(self) -> None:
        """Listens for readers. Raises TransferError when the port or NIXL is not available."""
        self._thread.start()

    @property
    def port(self) -> int:
        """Where readers connect. Raises TransferError before ``start``."""
        if self._session is None:
            raise TransferError("the exporter has not been started")
        return self._session.port

    def offer(self, export: Export) -> None:
        """Grants a lease on ``export``, from now.

        Raises ValueError while an export of the same request has not been reported as ended and
        for an id or generation that cannot be sent, TransferError when the thread has died.
        """
        self._thread.check()
        protocol.check_holding(export.request_id, export.generation)
        if export.request_id in self._offered:
            raise ValueError(f"request {export.request_id} is already exported")
        self._offered[export.request_id] = time.monotonic()
        self._thread.post(lambda session: session.owner.offer(export))

    def withdraw(self, request_id: str) -> None:
        """Takes an export back; it is reported as ended, as withdrawn unless it ended before."""
        self._thread.post(lambda session: session.owner.withdraw(request_id))

    def poll(self) -> list[Ended]:
        """Exports that ended since the last call. Raises TransferError when the thread died."""
        self._thread.check()
        ended: list[Ended] = []
        while self._ended:
            one = self._ended.popleft()
            del self._offered[one.request_id]
            ended.append(one)
        return ended

    def outstanding(self) -> int:
        """Exports that have not been reported as ended."""
        return len(self._offered)

    def oldest_age(self) -> float:
        """Seconds since the oldest outstanding export was offered; 0 without one."""
        if not self._offered:
            return 0.0
        return time.monotonic() - next(iter(self._offered.values()))

    def counters(self) -> OwnerCounters:
        owner = None if self._session is None else self._session.owner
        return OwnerCounters(
            **dataclasses.asdict(self._tally),
            readers=owner.readers if owner else 0,
            writes_under_way=owner.writes_under_way if owner else 0,
        )

    def close(self) -> None:
        """Disconnects all readers and stops; exports that had not ended are not reported."""
        self._thread.close()
