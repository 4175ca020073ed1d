"""One request as its reader sees it, and the pieces in which its bytes are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from oasis_runtime.pd import protocol
from oasis_runtime.pd.types import (
    Admitted,
    Bytes,
    Event,
    Landed,
    Mode,
    Pages,
    Reason,
    all_pages,
    decode_pages,
    encode_pages,
)


class ReadingState(Enum):
    """Only an alive reading hands out what arrives."""

    ALIVE = auto()
    RELEASED = auto()
    LOST = auto()


@dataclass(slots=True, eq=False)
class Reading:
    """A request that reads an export of a peer; missing counts are of its admission. ``digest`` is
    that of its prompt."""

    request_id: str
    holding: protocol.Holding
    digest: bytes
    mode: Mode
    state: ReadingState = ReadingState.ALIVE
    leased: bool = False
    """Whether the owner has answered the admission."""
    _n_tokens: int = 0
    _blob: bytearray = field(default_factory=bytearray)
    _blob_missing: int = 0
    _pages_total: int = 0
    _pages_missing: int = 0
    _admitted: bool = False
    _early: list[Landed] = field(default_factory=list)
    """Pages that overtook the blob; handed out after it."""

    @property
    def alive(self) -> bool:
        return self.state is ReadingState.ALIVE

    def open(self, admission: protocol.Admission, pages: int) -> list[Event]:
        """The owner's answer: ``pages`` pages and a blob will come. Events for the engine."""
        self.leased = True
        self._n_tokens = admission.n_tokens
        self._blob = bytearray(admission.blob_bytes)
        self._blob_missing = admission.blob_bytes
        self._pages_total = self._pages_missing = pages
        return self._admit_when_whole()

    def take_blob(self, item: protocol.BlobItem, data: Bytes) -> list[Event]:
        """A part of the blob has landed. Events for the engine, in order."""
        self._blob[item.offset : item.offset + item.length] = data.tobytes()
        self._blob_missing -= item.length
        return self._admit_when_whole()

    def _admit_when_whole(self) -> list[Event]:
        if self._blob_missing:
            return []
        self._admitted = True
        blob, self._blob = bytes(self._blob), bytearray()
        early, self._early = self._early, []
        return [Admitted(self.request_id, self._n_tokens, blob, self._pages_total), *early]

    def take_pages(
        self,
        reason: Reason,
        ticket: int,
        pages: Pages,
        data: Bytes,
        last: bool,
        done: Callable[[], None],
    ) -> list[Event]:
        """Pages have landed in ``data`` (uint8[n, page_bytes]). Events for the engine.

        ``last`` counts for a fetch; the last pages of an admission are those after which none
        is missing, since WRITEs may finish in another order than they were asked for.
        """
        if reason is Reason.ADMISSION:
            self._pages_missing -= len(pages)
            last = self._pages_missing == 0
        landed = Landed(self.request_id, reason, ticket, pages, data, last, done)
        if self._admitted:
            return [landed]
        self._early.append(landed)
        return []

    def end(self, state: ReadingState) -> None:
        """Nothing is handed out any more."""
        self.state = state
        early, self._early = self._early, []
        for landed in early:
            landed.done()


@dataclass(frozen=True, slots=True, eq=False)
class PagesPiece:
    """Pages of a fetch that go into one WRITE. ``ticket`` is 0 for an admission."""

    reading: Reading
    item: protocol.PagesItem
    pages: Pages
    nbytes: int
    ticket: int
    last: bool
    queued: float


@dataclass(frozen=True, slots=True, eq=False)
class BlobPiece:
    """A part of a blob that goes into one WRITE."""

    reading: Reading
    item: protocol.BlobItem
    nbytes: int
    queued: float


Piece = PagesPiece | BlobPiece


def blob_pieces(
    reading: Reading, blob_bytes: int, chunk_bytes: int, now: float
) -> Iterator[BlobPiece]:
    """A blob in pieces of at most ``chunk_bytes``."""
    for offset in range(0, blob_bytes, chunk_bytes):
        length = min(chunk_bytes, blob_bytes - offset)
        item = protocol.BlobItem(reading.holding, offset, length)
        yield BlobPiece(reading, item, length, now)


def page_pieces(
    reading: Reading, pages: Pages, page_bytes: int, chunk_bytes: int, ticket: int, now: float
) -> Iterator[PagesPiece]:
    """``pages`` in pieces of at most ``chunk_bytes``, but at least one page each."""
    step = max(1, chunk_bytes // page_bytes)
    for start in range(0, len(pages), step):
        part = pages[start : start + step]
        item = protocol.PagesItem(reading.holding, encode_pages(part))
        last = start + step >= len(pages)
        yield PagesPiece(reading, item, part, len(part) * page_bytes, ticket, last, now)


def check_size(admission: protocol.Admission, most_pages: int, page_bytes: int) -> None:
    """Raises ValueError when a peer announces more than ``most_pages`` pages, or more beside them.

    Comes before anything is allocated: the numbers are the peer's.
    """
    pages = admission.layers * admission.kv_heads * admission.blocks
    if pages > most_pages or admission.blob_bytes > most_pages * page_bytes:
        raise ValueError(
            f"the peer announced {pages} pages and {admission.blob_bytes} bytes of summaries; the "
            f"host tier here holds {most_pages} pages of {page_bytes} bytes"
        )


def admission_pages(mode: Mode, admission: protocol.Admission) -> Pages:
    """The pages that an admission in ``mode`` brings. Raises ValueError on a broken list."""
    if mode is Mode.ALL:
        return all_pages(admission.layers, admission.kv_heads, admission.blocks)
    return decode_pages(admission.pages)
