"""The owner's WRITEs: queue, send buffer, deadlines.

What has been packed is a copy, so an export may end while a WRITE of it is under way; a frozen
reader can therefore not hold an export beyond its lease.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass

from oasis_runtime.pd import protocol
from oasis_runtime.pd.agent import Agent, PeerGoneError, Write
from oasis_runtime.pd.counters import OwnerTally
from oasis_runtime.pd.landing import Region, RegionAllocator
from oasis_runtime.pd.memory import RegisteredMemory
from oasis_runtime.pd.packing import Packed, Packer
from oasis_runtime.pd.types import Reason, TransferError

_log = logging.getLogger(__name__)

_FETCHES_QUEUED = 4096
_CHECKS_PER_STEP = 64
"""A check moves some 50 KB: a step moves a few MB, then looks at the sockets again."""


@dataclass(slots=True, eq=False)
class Reader:
    """A reader that said hello: its socket identity and NIXL agent."""

    identity: bytes
    agent: str
    heard: float
    wire_since: float = 0.0
    """When the last WRITE to this reader was done: the next one had the wire from then on."""


class Answers(ABC):
    """Where the outcome of fetches goes."""

    @abstractmethod
    def answer(self, reader: Reader, message: protocol.FromOwner) -> None: ...

    @abstractmethod
    def refuse(self, reader: Reader, op: int, reason: str) -> None: ...

    @abstractmethod
    def lose(self, reader: Reader, reason: str) -> None:
        """The reader cannot be written to; must call ``Sender.forget``."""


@dataclass(frozen=True, slots=True, eq=False)
class _Fetch:
    reader: Reader
    message: protocol.Fetch


@dataclass(frozen=True, slots=True, eq=False)
class _Writing:
    fetch: _Fetch
    write: Write
    region: Region
    packed: Packed


class Sender:
    """Packs fetches into the send buffer, first come first served, and WRITEs them."""

    def __init__(
        self,
        agent: Agent,
        memory: RegisteredMemory,
        packer: Packer,
        write_seconds: float,
        answers: Answers,
        tally: OwnerTally,
    ) -> None:
        """``write_seconds``: a WRITE that takes longer loses its reader."""
        self._agent = agent
        self._memory = memory
        self._packer = packer
        self._write_seconds = write_seconds
        self._answers = answers
        self._tally = tally
        self._regions = RegionAllocator(memory.nbytes)
        self._fetches: deque[_Fetch] = deque()
        self._writing: list[_Writing] = []
        self._stuck: list[Write] = []

    @property
    def writes_under_way(self) -> int:
        return len(self._writing)

    def under_way(self) -> bool:
        return bool(self._writing or self._fetches)

    def enqueue(self, reader: Reader, message: protocol.Fetch) -> None:
        """Takes a fetch on, or refuses it."""
        if not 0 < message.nbytes <= self._regions.capacity:
            reason = (
                f"{message.nbytes} bytes are none, or do not fit this engine's send buffer of "
                f"{self._regions.capacity} bytes; both sides need the same transfer.landing_bytes"
            )
            self._answers.refuse(reader, message.op, reason)
        elif len(self._fetches) >= _FETCHES_QUEUED:
            self._answers.refuse(reader, message.op, "too many fetches wait for the send buffer")
        else:
            self._fetches.append(_Fetch(reader, message))

    def step(self) -> bool:
        """Advances WRITEs and packs the next fetch; True when there was anything to do."""
        self._stuck = [write for write in self._stuck if not write.abandon()]
        advanced = self._advance_all()
        return self._start_next() or advanced

    def forget(self, reader: Reader) -> None:
        """Disconnects a reader and drops all that it waits for."""
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

    def _start_next(self) -> bool:
        if not self._fetches:
            return False
        reader, message = self._fetches[0].reader, self._fetches[0].message
        region = self._regions.allocate(message.nbytes, reader.agent)
        if region is None:
            return False
        fetch = self._fetches.popleft()
        out = self._memory.view[region.offset : region.offset + region.nbytes]
        packed = self._packer.pack(message.items, out)
        self._tally.refused += len(packed.refused)
        if packed.nbytes == 0:
            self._free(region)
            self._answers.answer(reader, protocol.Fetched(message.op, packed.refused, 0))
            return True
        part = Region(region.offset, packed.nbytes)
        try:
            write = self._agent.write(part, reader.agent, message.address)
        except TransferError as error:
            self._free(region)
            self._answers.refuse(reader, message.op, str(error))
        else:
            self._writing.append(_Writing(fetch, write, region, packed))
        return True

    def _free(self, region: Region) -> None:
        self._regions.land(region)
        self._regions.release(region)

    def _advance_all(self) -> bool:
        for _ in range(_CHECKS_PER_STEP if self._writing else 0):
            finished = False
            for writing in list(self._writing):
                # The loss of a reader takes all its WRITEs along.
                if writing in self._writing:
                    finished |= self._advance(writing)
            if finished:
                return True
        return False

    def _advance(self, writing: _Writing) -> bool:
        """True when this WRITE is over."""
        reader, message = writing.fetch.reader, writing.fetch.message
        try:
            done = writing.write.done()
        except PeerGoneError as error:
            self._tally.failed_writes += 1
            self._answers.lose(reader, str(error))
            return True
        now = time.monotonic()
        if not done:
            if now - writing.write.posted_at < self._write_seconds:
                return False
            self._tally.failed_writes += 1
            reason = f"a WRITE was not taken within {self._write_seconds:g} s"
            self._answers.lose(reader, reason)
            return True
        self._writing.remove(writing)
        self._free(writing.region)
        wire_us = round((now - max(writing.write.posted_at, reader.wire_since)) * 1e6)
        reader.wire_since = now
        refused = writing.packed.refused
        self._answers.answer(reader, protocol.Fetched(message.op, refused, wire_us))
        if message.reason is Reason.ADMISSION:
            self._tally.admission_bytes += writing.packed.nbytes
        else:
            self._tally.demand_bytes += writing.packed.nbytes
        return True
