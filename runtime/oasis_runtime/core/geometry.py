"""Shapes and sizes of the paged KV of one engine rank."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Geometry:
    """A *page* is the keys and values of one block for one KV head of one layer.

    ``group`` is the number of query heads per KV head; ``dim`` the head size; ``block`` the tokens
    per block; ``host_blocks`` the blocks of the host tier (vLLM's block ids); ``slots`` the pages
    of the fast tier per layer; ``element_bytes`` the size of one KV element.
    """

    layers: int
    heads: int
    group: int
    dim: int
    block: int
    element_bytes: int
    host_blocks: int
    slots: int

    def __post_init__(self) -> None:
        for name in ("layers", "heads", "group", "dim", "block", "element_bytes", "host_blocks"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if self.element_bytes not in (1, 2, 4):
            raise ValueError(f"element_bytes must be 1, 2 or 4, got {self.element_bytes}")
        if self.slots < self.heads:
            raise ValueError(
                f"the fast tier has {self.slots} pages a layer, fewer than the "
                f"{self.heads} KV heads; "
                "raise tiers.fast_bytes"
            )

    @property
    def page_bytes(self) -> int:
        return 2 * self.block * self.dim * self.element_bytes

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over all layers and KV heads."""
        return self.page_bytes * self.layers * self.heads

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block)


def slots_for(fast_bytes: int, layers: int, page_bytes: int) -> int:
    """Pages per layer that ``fast_bytes`` of fast tier hold."""
    return fast_bytes // (layers * page_bytes)
