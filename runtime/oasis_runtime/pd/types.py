"""What callers of the transfer pass in and get back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Pages = NDArray[np.int32]
"""int32[n, 3] of (layer, KV head, logical block) of one request."""

Bytes = NDArray[np.uint8]


class TransferError(Exception):
    """A transfer could not be done; the message says what is wrong and where."""


class Mode(StrEnum):
    """How much of an export a reader takes at admission."""

    HOT = "hot"
    """The pages that the owner selected; the rest is fetched on demand."""
    ALL = "all"


class Reason(StrEnum):
    """Why pages move."""

    ADMISSION = "admission"
    DEMAND = "demand"


class EndReason(StrEnum):
    """Why an export ended at its owner."""

    RELEASED = "released"
    """The reader had all that it needed, or gave up."""
    EXPIRED = "expired"
    """No reader renewed the lease in time."""
    WITHDRAWN = "withdrawn"
    """The owner's engine took it back."""


class PageSource(Protocol):
    """The owner's host tier. A page is one block of one KV head of one layer."""

    @property
    def page_bytes(self) -> int: ...

    @property
    def layers(self) -> int: ...

    @property
    def kv_heads(self) -> int: ...

    def read_pages(self, block_ids: NDArray[np.int32], pages: Pages, out: Bytes) -> None:
        """Copy ``pages`` into ``out`` (uint8[n * page_bytes]), page i at ``i * page_bytes``.

        ``block_ids`` (int32[logical blocks]) are the export's host blocks by logical block.
        Called on the transfer thread, for exports that have not been reported as ended; should
        release the GIL. Pages are within bounds.
        """


@dataclass(frozen=True, slots=True, eq=False)
class Export:
    """The KV of one prompt, as its owner offers it.

    ``block_ids``: int32[logical blocks], host block of each logical block; the caller must keep
    them until the export is reported as ended. ``generation`` tells apart two exports that use
    the same request id or blocks. ``hot``: int32[n, 3], the pages sent in mode hot. ``blob`` is
    opaque here and reaches the reader with the admission (summaries, selection). ``digest`` says
    which prompt it is (:func:`oasis_runtime.pd.digest.prompt_digest`).
    """

    request_id: str
    generation: int
    n_tokens: int
    block_ids: NDArray[np.int32]
    hot: Pages
    blob: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """An export that its owner may free now. Reported exactly once per export."""

    request_id: str
    generation: int
    reason: EndReason


@dataclass(frozen=True, slots=True)
class Peer:
    """Where an owner listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Admitted:
    """An admission's header and blob are here; ``pages_total`` pages follow as :class:`Landed`."""

    request_id: str
    n_tokens: int
    blob: bytes
    pages_total: int


@dataclass(frozen=True, slots=True, eq=False)
class Landed:
    """Pages that arrived.

    ``pages``: int32[n, 3]; ``data``: uint8[n, page_bytes], a view of the landing buffer that is
    valid until ``done`` is called, which must happen exactly once (ValueError otherwise).
    ``ticket`` is what ``Importer.fetch`` returned, 0 for an admission. ``last`` marks the last
    pages of the admission or of the fetch.
    """

    request_id: str
    reason: Reason
    ticket: int
    pages: Pages
    data: Bytes
    last: bool
    done: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Lost:
    """No further page of this request will come; it must be recomputed or failed."""

    request_id: str
    reason: str


Event = Admitted | Landed | Lost


def encode_pages(pages: Pages) -> bytes:
    """Wire form of ``pages``: little-endian int32, row by row.

    Raises ValueError when the shape is not [n, 3].
    """
    if pages.ndim != 2 or pages.shape[1] != 3:
        raise ValueError(f"pages must have shape [n, 3], not {list(pages.shape)}")
    return np.ascontiguousarray(pages, dtype="<i4").tobytes()


def decode_pages(data: bytes) -> Pages:
    """The pages of :func:`encode_pages`. Raises ValueError on a partial row."""
    if len(data) % 12:
        raise ValueError(f"a page list of {len(data)} bytes is not a multiple of 12")
    return np.frombuffer(data, dtype="<i4").reshape(-1, 3).astype(np.int32, copy=False)


def all_pages(layers: int, kv_heads: int, blocks: int) -> Pages:
    """Every page of a request, int32[layers * kv_heads * blocks, 3], layer by layer."""
    grid = np.indices((layers, kv_heads, blocks), dtype=np.int32)
    return np.ascontiguousarray(grid.reshape(3, -1).T)
