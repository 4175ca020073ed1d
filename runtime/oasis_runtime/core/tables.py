"""The arrays that say where every page is, and the check that they agree with each other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from oasis_runtime.core.bfloat16 import ONE
from oasis_runtime.core.geometry import Geometry


class SlotState(IntEnum):
    FREE = 0
    ARRIVING = 1
    """Given to a page whose copy is not complete; nobody may read, evict or give it away."""
    RESIDENT = 2


_CACHE_LINE = 64


def _aligned(shape: tuple[int, ...]) -> npt.NDArray[np.int8]:
    """Zeros that begin at a cache line: where the head size is a multiple of it, no row straddles
    two, which halves the time to score blocks."""
    size = math.prod(shape)
    raw = np.zeros(size + _CACHE_LINE, np.int8)
    first = -raw.ctypes.data % _CACHE_LINE
    return raw[first : first + size].reshape(shape)


def plain_elements(g: Geometry) -> npt.NDArray[np.int32]:
    """``Tables.elements`` of pages that are keys [B, D], then values [B, D]."""
    keys = np.arange(g.block * g.dim, dtype=np.int32).reshape(g.block, g.dim)
    return np.concatenate([keys, keys + g.block * g.dim], axis=1, dtype=np.int32)


@dataclass(frozen=True)
class Tables:
    """Page tables of all layers and KV heads, and the summaries of the host tier's blocks.

    Shapes, with L layers, H KV heads, V host blocks, S slots, D head size, R lanes, M the most
    blocks that a selection may hold:

    - ``host``: uint64 [L], address of each layer's host pages, laid out [V, H, page_bytes].
    - ``fast``: uint8 [L, S, page_bytes], the fast tier.
    - ``slot_of``: int32 [L, H, V], slot of a page or -1. ``owner``: int64 [L, S], head * V + block
      of the page in a slot or -1. ``last``: int32 [L, S], the last step that selected it.
      ``state``: uint8 [L, S], :class:`SlotState`.
    - ``present``: uint8 [L, H, V], whether the host tier holds the page (a decode engine's host
      tier lacks the pages that its prefill engine has not sent).
    - ``bounds``: int8 [L, V, H, 2, D], the least and the greatest values of a block's keys, and
      ``scale``: bfloat16 [L, V, H] as uint16: element-wise, the keys are within ``scale * low``
      and ``scale * high`` (Quest, arXiv 2406.10774). The products are exact in float32: 8 bits of
      one factor and 7 of the other.
    - ``selected``: int32 [R, L, H, M], each lane's selection as ascending logical blocks;
      ``count``: int32 [R, L, H].
    - ``boost``: uint8 [L, H], how many times a request's budget a KV head may select.
    - ``elements``: int32 [B, 2 * D], where in a page, in elements, the key and then the value of
      the token at each position are: the serving framework's kernels decide that.
    """

    geometry: Geometry
    host: npt.NDArray[np.uint64]
    fast: npt.NDArray[np.uint8]
    slot_of: npt.NDArray[np.int32]
    owner: npt.NDArray[np.int64]
    last: npt.NDArray[np.int32]
    state: npt.NDArray[np.uint8]
    present: npt.NDArray[np.uint8]
    bounds: npt.NDArray[np.int8]
    scale: npt.NDArray[np.uint16]
    selected: npt.NDArray[np.int32]
    count: npt.NDArray[np.int32]
    boost: npt.NDArray[np.uint8]
    elements: npt.NDArray[np.int32]

    @staticmethod
    def create(
        geometry: Geometry,
        host: npt.NDArray[np.uint64],
        fast: npt.NDArray[np.uint8],
        lanes: int,
        max_selected: int,
        elements: npt.NDArray[np.int32] | None = None,
    ) -> Tables:
        """Empty tables over the given tiers. Without ``elements`` a page is its keys [B, D], then
        its values [B, D].

        Raises ValueError when a tier has not the shape that the geometry gives.
        """
        g = geometry
        if elements is None:
            elements = plain_elements(g)
        if elements.shape != (g.block, 2 * g.dim) or not elements.flags.c_contiguous:
            raise ValueError(
                f"elements must be a contiguous {(g.block, 2 * g.dim)}, got {elements.shape}"
            )
        if host.shape != (g.layers,):
            raise ValueError(f"host needs one address a layer ({g.layers}), got {host.shape}")
        if fast.shape != (g.layers, g.slots, g.page_bytes) or not fast.flags.c_contiguous:
            raise ValueError(
                f"fast must be a contiguous {(g.layers, g.slots, g.page_bytes)}, got {fast.shape}"
            )
        pages = (g.layers, g.heads, g.host_blocks)
        rows = (g.layers, g.host_blocks, g.heads)
        return Tables(
            geometry=g,
            host=host,
            fast=fast,
            slot_of=np.full(pages, -1, np.int32),
            owner=np.full((g.layers, g.slots), -1, np.int64),
            last=np.full((g.layers, g.slots), -1, np.int32),
            state=np.zeros((g.layers, g.slots), np.uint8),
            present=np.zeros(pages, np.uint8),
            bounds=_aligned((*rows, 2, g.dim)),
            scale=np.full(rows, ONE, np.uint16),
            selected=np.zeros((lanes, g.layers, g.heads, max_selected), np.int32),
            count=np.zeros((lanes, g.layers, g.heads), np.int32),
            boost=np.ones((g.layers, g.heads), np.uint8),
            elements=elements,
        )

    @property
    def low(self) -> npt.NDArray[np.int8]:
        """View [L, V, H, D] of ``bounds``."""
        return self.bounds[:, :, :, 0]

    @property
    def high(self) -> npt.NDArray[np.int8]:
        """View [L, V, H, D] of ``bounds``."""
        return self.bounds[:, :, :, 1]

    @property
    def summary_bytes(self) -> int:
        """Bytes of summaries of one block over all layers and KV heads."""
        g = self.geometry
        return g.layers * g.heads * (2 * g.dim + 2)

    def release(self, layer: npt.NDArray[np.int32], slot: npt.NDArray[np.int32]) -> None:
        """Free these slots [n], each of which has a page."""
        head, block = np.divmod(self.owner[layer, slot], self.geometry.host_blocks)
        self.slot_of[layer, head, block] = -1
        self.owner[layer, slot] = self.last[layer, slot] = -1
        self.state[layer, slot] = SlotState.FREE

    def check(self) -> None:
        """Raise AssertionError unless page table and slots agree in both directions."""
        g = self.geometry
        owned = self.owner >= 0
        if not np.array_equal(owned, self.state != SlotState.FREE):
            raise AssertionError("a slot is free but has an owner, or has none but is not free")
        layer, slot = np.nonzero(owned)
        head, block = np.divmod(self.owner[layer, slot], g.host_blocks)
        if not np.array_equal(self.slot_of[layer, head, block], slot):
            raise AssertionError("a slot's owner is mapped to another slot")
        if int((self.slot_of >= 0).sum()) != int(owned.sum()):
            raise AssertionError("a page is mapped to a slot that it does not own")

    def resident(self) -> int:
        """Pages in the fast tier, over all layers."""
        return int(np.count_nonzero(self.state == SlotState.RESIDENT.value))
