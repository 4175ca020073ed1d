"""What every kernel implementation does, over the arrays of :class:`Tables`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from typing import Protocol

import numpy as np
import numpy.typing as npt

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
F32 = npt.NDArray[np.float32]
U8 = npt.NDArray[np.uint8]


class SelectFlag(IntFlag):
    ADMISSION = 1
    """First selection of a request: every page of it may be loaded, whatever the cap."""
    COMPARE = 2
    """The query is the token's own: the old selection was the prediction of this one."""
    CHOOSE_ONLY = 4
    """No page is loaded or kept for it: a prefill engine chooses for its peer."""
    KEEP = 8
    """Blocks of the old selection count :data:`HYSTERESIS` times: sets change less than queries."""


HYSTERESIS = 4.0
"""Measured, see bench/lookahead.py: a third of the pages move, and no mass is lost by it. Blocks
near the edge of the budget weigh about the same, and the bound on their mass is noisier than that.
"""


@dataclass(frozen=True)
class Rows:
    """The n requests of one kernel call, one entry each unless a shape is given.

    ``lanes``: int32, where the request's selection is kept. ``tables``: int32 [n, stride], host
    block of each logical block. ``sinks``: int32, leading blocks that are always kept. ``window``:
    int32, first logical block of the local window. ``lengths``: int32, tokens of the request.
    """

    lanes: I32
    tables: I32
    sinks: I32
    window: I32
    lengths: I32

    def __len__(self) -> int:
        return len(self.lanes)


@dataclass(frozen=True)
class Selected:
    """What a selection changed.

    ``loads``: int32 [*, 4] of (head, host block, slot, admission) to be copied; their slots are
    ARRIVING. ``wants``: int32 [*, 3] of (row, head, logical block) that the host tier lacks.
    Counts are of pages: ``selected`` and of these ``resident`` (with their copy complete);
    ``compared`` and of these ``agreed``; ``starved`` for want of a slot; ``capped``.
    """

    loads: I32
    wants: I32
    selected: int
    resident: int
    compared: int
    agreed: int
    starved: int
    capped: int


class Kernels(Protocol):
    """One rank's kernels, bound to its tables."""

    def summarize(self, layer: int, key: F32, slots: I64) -> None:
        """Fold keys [n, tokens, H, D] of the n layers from ``layer`` on into the summaries of the
        blocks that ``slots`` (host slot of each token, -1 for none) name; a token at the first
        position of a block starts it afresh. Marks the pages present."""

    def drop(self, blocks: I32) -> None:
        """Forget all that is known of the pages of these host blocks: they hold something else."""

    def pin(self, blocks: I32, step: int) -> int:
        """Make these host blocks resident for all layers and heads now; returns pages copied.

        Slots are taken from free ones, then from the least recently selected, in the end from
        those selected for ``step`` itself, whose pages will be late; never from a pinned one.
        Raises MemoryError, with nothing changed, when a layer has not the slots.
        """

    def place(self, rows: Rows, old: U8, step: int) -> I32:
        """Mark the selected pages of the requests that ``old`` flags as selected at ``step``, and
        give slots to those that are present and have none: free ones, then the least recently
        selected of those that no request of ``rows`` attends to (selection, sinks and window).

        Returns int32 [*, 4] of (layer, head, host block, slot) to be copied, ascending in layer;
        their slots are ARRIVING.
        """

    def mirror(self, layer: int, slots: I64) -> None:
        """Copy the keys and values of the tokens at these host slots (-1 for none) to the fast
        tier, for each head whose page is RESIDENT."""

    def rows(self, layer: int, rows: Rows, width: int) -> tuple[I32, I32, int]:
        """Block tables over slots, int32 [n * H, width], their lengths in tokens, int32 [n * H],
        and the number of selected pages that were left out because they had not come.

        Each row is sinks, selection, window; the last block is the request's tail. The arrays are
        valid until the next call. Raises LookupError when a sink or a window block is not resident.
        """

    def select(
        self,
        layer: int,
        rows: Rows,
        query: F32,
        softmax_scale: float,
        budget: I32,
        flags: U8,
        cap: int,
        step: int,
    ) -> Selected:
        """Choose the blocks of the next step from ``query`` [n, H, G, D], keep them as the lanes'
        selections, mark them selected at ``step`` and give slots to those that have none.

        The score of a block is the sum over the query heads of a KV head of their softmax mass
        under the bound of :class:`Tables`, more with KEEP; the lower block wins a tie. What COMPARE
        counts as agreed is the old selection's part of the best blocks without KEEP. A head may
        select ``budget`` blocks times its ``boost``; at most ``cap`` pages are loaded or wanted
        beyond admissions, best first; slots are taken from free ones, then from the least recently
        selected, never from one selected for ``step``. Sinks and window come first, whatever the
        cap.
        """

    def copy(self, moves: I32, progress: I64) -> None:
        """Copy pages int32 [n, 4] of (layer, head, host block, slot) into the fast tier; each slot
        becomes RESIDENT as it is filled and ``progress[0]`` counts them. Any thread may call it.

        Raises OSError when a page cannot be copied: the first ``progress[0]`` are RESIDENT then,
        the others still ARRIVING. What else it raises ends the engine.
        """

    def read_pages(self, pages: I32, out: U8) -> None:
        """Copy host pages int32 [n, 3] of (layer, head, host block) to ``out``."""

    def write_pages(self, pages: I32, data: U8) -> None:
        """Copy ``data`` to host pages and mark them present."""
