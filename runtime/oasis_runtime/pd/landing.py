"""Regions of a registered buffer, and who may still touch them.

A region is *exposed* to a peer from its allocation on: a WRITE into it (reader) or out of it
(owner) may be under way. It becomes free only from *landed* (the transfer is known to be over),
or when its peer is gone for good (the agent that could reach it no longer exists). An exposed
region that nobody waits for any more is *quarantined*: late data may still hit it.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class Region:
    """``nbytes`` at ``offset`` of the buffer."""

    offset: int
    nbytes: int


class _State(Enum):
    EXPOSED = auto()
    QUARANTINED = auto()
    LANDED = auto()


@dataclass(slots=True)
class _Use:
    region: Region
    span: int
    peer: str
    state: _State


class RegionAllocator:
    """First fit over ``capacity`` bytes, in multiples of ``alignment``. Not thread-safe."""

    def __init__(self, capacity: int, alignment: int = 4096) -> None:
        self.capacity = capacity - capacity % alignment
        self._alignment = alignment
        self._free: list[tuple[int, int]] = [(0, self.capacity)] if self.capacity else []
        self._uses: dict[int, _Use] = {}
        self.used = 0
        """Bytes that are not free."""
        self.quarantined = 0
        """Bytes that nobody waits for, but that a peer may still touch."""

    def allocate(self, nbytes: int, peer: str) -> Region | None:
        """A region exposed to ``peer``; None when no gap is large enough now.

        Raises ValueError when ``nbytes`` is not positive or could never fit.
        """
        if nbytes <= 0:
            raise ValueError(f"a region of {nbytes} bytes cannot be allocated")
        span = -(-nbytes // self._alignment) * self._alignment
        if span > self.capacity:
            raise ValueError(f"{nbytes} bytes do not fit a buffer of {self.capacity} bytes")
        for index, (offset, size) in enumerate(self._free):
            if size < span:
                continue
            if size == span:
                del self._free[index]
            else:
                self._free[index] = (offset + span, size - span)
            region = Region(offset, nbytes)
            self._uses[offset] = _Use(region, span, peer, _State.EXPOSED)
            self.used += span
            return region
        return None

    def _use(self, region: Region, *states: _State) -> _Use:
        use = self._uses.get(region.offset)
        if use is None or use.region is not region:
            raise ValueError(f"{region} is not allocated")
        if use.state not in states:
            raise ValueError(f"{region} is {use.state.name.lower()}")
        return use

    def land(self, region: Region) -> bool:
        """The transfer is over. True: the data is the caller's, who must ``release`` it.
        False: the region was quarantined, and is free now."""
        use = self._use(region, _State.EXPOSED, _State.QUARANTINED)
        if use.state is _State.QUARANTINED:
            self._put_back(use)
            return False
        use.state = _State.LANDED
        return True

    def quarantine(self, region: Region) -> None:
        """Nobody waits for this transfer any more, but it may not be over."""
        use = self._use(region, _State.EXPOSED)
        use.state = _State.QUARANTINED
        self.quarantined += use.span

    def release(self, region: Region) -> None:
        """Frees a landed region. Raises ValueError for one that a peer may still touch."""
        self._put_back(self._use(region, _State.LANDED))

    def peer_gone(self, peer: str) -> None:
        """No agent of ``peer`` can reach the buffer any more: frees all that was exposed to it.

        Landed regions stay: their data is in use here.
        """
        for use in list(self._uses.values()):
            if use.peer == peer and use.state is not _State.LANDED:
                self._put_back(use)

    def _put_back(self, use: _Use) -> None:
        del self._uses[use.region.offset]
        self.used -= use.span
        if use.state is _State.QUARANTINED:
            self.quarantined -= use.span
        insort(self._free, (use.region.offset, use.span))
        merged: list[tuple[int, int]] = []
        for offset, size in self._free:
            start, length = merged[-1] if merged else (0, -1)
            if start + length == offset:
                merged[-1] = (start, length + size)
            else:
                merged.append((offset, size))
        self._free = merged
