"""Pieces that wait for landing memory, and how they are put together into WRITEs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from oasis_runtime.pd.landing import Region
from oasis_runtime.pd.reading import PagesPiece, Piece


class PieceQueue:
    """First come, first served. Pieces of readings that are not alive any more are skipped."""

    def __init__(self, chunk_bytes: int, fetch_taken: Callable[[], None]) -> None:
        """``fetch_taken`` is called when the last piece of a fetch leaves the queue."""
        self._chunk_bytes = chunk_bytes
        self._fetch_taken = fetch_taken
        self._pieces: deque[Piece] = deque()

    def __len__(self) -> int:
        return len(self._pieces)

    def extend(self, pieces: Iterable[Piece]) -> None:
        self._pieces.extend(pieces)

    def _pop(self) -> Piece:
        piece = self._pieces.popleft()
        if isinstance(piece, PagesPiece) and piece.ticket and piece.last:
            self._fetch_taken()
        return piece

    def take(self, allocate: Callable[[int], Region | None]) -> tuple[Region, list[Piece]] | None:
        """The next pieces, of any requests, that fit one WRITE, and the region for them.

        None when nothing waits, or when ``allocate(nbytes)`` has no region now.
        """
        while self._pieces and not self._pieces[0].reading.alive:
            self._pop()
        if not self._pieces:
            return None
        count, nbytes = 0, 0
        for piece in self._pieces:
            size = piece.nbytes if piece.reading.alive else 0
            if count and nbytes + size > self._chunk_bytes:
                break
            count += 1
            nbytes += size
        region = allocate(nbytes)
        if region is None:
            return None
        popped = [self._pop() for _ in range(count)]
        return region, [piece for piece in popped if piece.reading.alive]

    def overdue(self, before: float) -> list[Piece]:
        """Takes out the pieces that were queued before this time."""
        taken = []
        while self._pieces and self._pieces[0].queued <= before:
            taken.append(self._pop())
        return taken

    def clear(self) -> None:
        while self._pieces:
            self._pop()
