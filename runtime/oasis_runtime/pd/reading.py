"""One request as its reader sees it, and the pieces in which its bytes are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from oasis_runtime.pd import protocol
from oasis_runtime.pd.types import Landed, Mode, Pages, all_pages, decode_pages, encode_pages


class ReadingState(Enum):
    """Only an alive reading hands out what arrives."""

    ALIVE = auto()
    RELEASED = auto()
    LOST = auto()


@dataclass(slots=True, eq=False)
class Reading:
    """A request that reads an export of a peer; missing counts are of its admission."""

    request_id: str
    holding: protocol.Holding
    mode: Mode
    state: ReadingState = ReadingState.ALIVE
    leased: bool = False
    n_tokens: int = 0
    blob: bytearray = field(default_factory=bytearray)
    blob_missing: int = 0
    pages_total: int = 0
    pages_missing: int = 0
    admitted: bool = False
    early: list[Landed] = field(default_factory=list)
    """Pages that overtook the blob; handed out after it."""

    @property
    def alive(self) -> bool:
        return self.state is ReadingState.ALIVE


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Part of a fetch that goes into one WRITE. ``pages`` is None for a part of a blob."""

    reading: Reading
    item: protocol.Item
    pages: Pages | None
    nbytes: int
    ticket: int
    last: bool
    queued: float


def blob_pieces(reading: Reading, blob_bytes: int, chunk_bytes: int, now: float) -> Iterator[Piece]:
    """A blob in pieces of at most ``chunk_bytes``."""
    for offset in range(0, blob_bytes, chunk_bytes):
        length = min(chunk_bytes, blob_bytes - offset)
        item = protocol.BlobItem(reading.holding, offset, length)
        yield Piece(reading, item, None, length, 0, False, now)


def page_pieces(
    reading: Reading, pages: Pages, page_bytes: int, chunk_bytes: int, ticket: int, now: float
) -> Iterator[Piece]:
    """``pages`` in pieces of at most ``chunk_bytes``, but at least one page each."""
    step = max(1, chunk_bytes // page_bytes)
    for start in range(0, len(pages), step):
        part = pages[start : start + step]
        item = protocol.PagesItem(reading.holding, encode_pages(part))
        last = start + step >= len(pages)
        yield Piece(reading, item, part, len(part) * page_bytes, ticket, last, now)


def admission_pages(mode: Mode, admission: protocol.Admission) -> Pages:
    """The pages that an admission in ``mode`` brings. Raises ValueError on a broken list."""
    if mode is Mode.ALL:
        return all_pages(admission.layers, admission.kv_heads, admission.blocks)
    return decode_pages(admission.pages)
