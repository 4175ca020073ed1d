"""The owner's side of the protocol: who reads, and what they are told.

Runs on the transfer thread alone. Every message about an export is checked against its lease and
generation when it is packed, and again after packing, before the WRITE is posted: an export that
the lease table has given up is never sent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from oasis_runtime.pd import protocol
from oasis_runtime.pd.agent import Agent
from oasis_runtime.pd.counters import OwnerTally
from oasis_runtime.pd.exports import ExportBook
from oasis_runtime.pd.lease import Clock
from oasis_runtime.pd.memory import RegisteredMemory
from oasis_runtime.pd.packing import Packer
from oasis_runtime.pd.sending import Answers, Reader, Sender
from oasis_runtime.pd.settings import TransferSettings
from oasis_runtime.pd.types import Ended, Export, Mode, PageSource, TransferError, encode_pages

_log = logging.getLogger(__name__)

Send = Callable[[bytes, protocol.FromOwner], None]
"""Sends a message to the reader with this socket identity; never waits."""


@dataclass(frozen=True, slots=True, eq=False)
class _Early:
    """An admission that came before its export."""

    reader: Reader
    message: protocol.Admit
    until: float


class Owner(Answers):
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
        self._send = send
        self._tally = tally
        self._clock = clock
        self._book = ExportBook(settings.lease_seconds, clock, ended, tally)
        packer = Packer(source, self._book)
        self._sender = Sender(agent, memory, packer, settings.operation_seconds, self, tally)
        self._readers: dict[bytes, Reader] = {}
        self._early: list[_Early] = []

    @property
    def readers(self) -> int:
        return len(self._readers)

    @property
    def writes_under_way(self) -> int:
        return self._sender.writes_under_way

    def under_way(self) -> bool:
        """Whether a WRITE waits for progress."""
        return self._sender.under_way()

    # What the owner's engine asks for.

    def offer(self, export: Export) -> None:
        """Grants a lease, and answers a reader that was faster than the offer."""
        self._book.offer(export)
        self._answer_early(lambda early: early.message.holding.request == export.request_id)

    def withdraw(self, request_id: str) -> None:
        """Ends an export; ignored when it has ended."""
        self._book.withdraw(request_id)

    # What time asks for.

    def step(self) -> bool:
        """Moves WRITEs on, lets leases and deadlines run out; True when a WRITE moved."""
        worked = self._sender.step()
        self._book.expire()
        now = self._clock()
        self._answer_early(lambda early: now >= early.until)
        for reader in list(self._readers.values()):
            if now - reader.heard > self._settings.lease_seconds:
                self.lose(reader, "it has been silent for a whole lease")
        return worked

    def _answer_early(self, which: Callable[[_Early], bool]) -> None:
        for early in [early for early in self._early if which(early)]:
            self._early.remove(early)
            self._admit(early.reader, early.message)

    # What readers ask for.

    def receive(self, identity: bytes, data: bytes) -> None:
        """Handles one message of the reader with this socket identity."""
        try:
            message = protocol.decode_from_reader(data)
        except protocol.VersionMismatchError as error:
            self._turn_away(identity, str(error))
            return
        except protocol.ProtocolError as error:
            self._tally.malformed += 1
            _log.warning("dropped a message on the transfer port: %s", error)
            return
        if isinstance(message, protocol.Hello):
            self._greet(identity, message)
        elif identity in self._readers:
            reader = self._readers[identity]
            reader.heard = self._clock()
            self._handle(reader, message)
        else:
            self._turn_away(identity, "this engine does not know the reader (any more)")

    def _turn_away(self, identity: bytes, reason: str) -> None:
        self._tally.refused += 1
        self._send(identity, protocol.Unwelcome(reason))

    def _handle(
        self,
        reader: Reader,
        message: protocol.Admit | protocol.Fetch | protocol.Renew | protocol.Release,
    ) -> None:
        match message:
            case protocol.Admit():
                if self._book.knows(message.holding.request):
                    self._admit(reader, message)
                else:
                    until = self._clock() + self._settings.offer_grace_seconds
                    self._early.append(_Early(reader, message, until))
            case protocol.Fetch():
                for item in message.items:
                    self._book.extend(item.holding)
                self._sender.enqueue(reader, message)
            case protocol.Renew():
                unknown = [h.request for h in message.holdings if not self._book.extend(h)]
                self.answer(reader, protocol.Renewed(message.op, unknown))
            case protocol.Release():
                for holding in message.holdings:
                    self._book.release(holding)

    def _greet(self, identity: bytes, hello: protocol.Hello) -> None:
        if identity in self._readers:
            self.lose(self._readers[identity], "it said hello again")
        try:
            self._check(hello)
            named = self._agent.add_peer(hello.metadata)
            if named != hello.agent:
                self._agent.forget_peer(named)
                raise TransferError(f"the metadata is of agent {named}, not of {hello.agent}")
        except TransferError as error:
            _log.warning("refused a reader: %s", error)
            self._turn_away(identity, str(error))
            return
        self._readers[identity] = Reader(identity, hello.agent, self._clock())
        self._send(identity, protocol.Welcome(self._agent.name, self._settings.lease_seconds))

    def _check(self, hello: protocol.Hello) -> None:
        if hello.fingerprint != self._fingerprint:
            raise TransferError(
                f"the reader's KV layout is {hello.fingerprint}, this engine's is "
                f"{self._fingerprint}; both roles must run the same model and configuration"
            )
        if hello.page_bytes != self._source.page_bytes:
            raise TransferError(
                f"the reader's pages have {hello.page_bytes} bytes, this engine's "
                f"{self._source.page_bytes}; both roles need the same block size and dtype"
            )
        if any(reader.agent == hello.agent for reader in self._readers.values()):
            raise TransferError(f"another reader is connected as {hello.agent}")

    def _admit(self, reader: Reader, message: protocol.Admit) -> None:
        holding = message.holding
        reason = self._book.refusal(holding)
        if reason is not None:
            self.refuse(reader, message.op, reason)
            return
        self._book.extend(holding)
        export = self._book.read(holding)
        answer = protocol.Admission(
            op=message.op,
            n_tokens=export.n_tokens,
            layers=self._source.layers,
            kv_heads=self._source.kv_heads,
            blocks=len(export.block_ids),
            blob_bytes=len(export.blob),
            pages=encode_pages(export.hot) if message.mode is Mode.HOT else b"",
            digest=export.digest,
        )
        self.answer(reader, answer)

    # What readers are told.

    def answer(self, reader: Reader, message: protocol.FromOwner) -> None:
        self._send(reader.identity, message)

    def refuse(self, reader: Reader, op: int, reason: str) -> None:
        self._tally.refused += 1
        self.answer(reader, protocol.Refused(op, reason))

    def lose(self, reader: Reader, reason: str) -> None:
        """Disconnects a reader. Its exports live on until their leases end."""
        _log.warning("disconnected reader %s: %s", reader.agent, reason)
        self._tally.readers_lost += 1
        self._disconnect(reader)

    def _disconnect(self, reader: Reader) -> None:
        del self._readers[reader.identity]
        self._early = [early for early in self._early if early.reader is not reader]
        self._sender.forget(reader)

    def close(self) -> None:
        """Disconnects all readers."""
        for reader in list(self._readers.values()):
            self._disconnect(reader)
