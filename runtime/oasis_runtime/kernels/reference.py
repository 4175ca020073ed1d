"""The contract in plain numpy, slow and obvious: the oracle that other kernels are tested with."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis_runtime.core.bfloat16 import round_up, widen
from oasis_runtime.core.tables import SlotState, Tables
from oasis_runtime.kernels.contract import (
    F32,
    HYSTERESIS,
    I32,
    I64,
    U8,
    Rows,
    Selected,
    SelectFlag,
)

LEAST_TOP = np.float32(2.0**-100)
"""Keys nearer to zero than this count as this far from it: their scale would not be a number."""


class ReferenceKernels:
    """See :class:`oasis_runtime.kernels.contract.Kernels`."""

    def __init__(self, tables: Tables) -> None:
        g = tables.geometry
        self._t = tables
        self._g = g
        layer_bytes = g.host_blocks * g.heads * g.page_bytes
        self._host = [
            np.ctypeslib.as_array(
                (ctypes.c_uint8 * layer_bytes).from_address(int(address))
            ).reshape(g.host_blocks, g.heads, g.page_bytes)
            for address in tables.host
        ]

    # ------------------------------------------------------------------ summaries

    def summarize(self, layer: int, key: F32, slots: I64) -> None:
        for i, mine in enumerate(key):
            self._summarize(layer + i, mine, slots)

    def _summarize(self, layer: int, key: F32, slots: I64) -> None:
        for first, end in self._runs(slots):
            block, position = divmod(int(slots[first]), self._g.block)
            for head in range(self._g.heads):
                low = key[first:end, head].min(axis=0)
                high = key[first:end, head].max(axis=0)
                if position > 0:
                    scale = self._scale(layer, block, head)
                    low = np.minimum(low, scale * self._t.low[layer, block, head])
                    high = np.maximum(high, scale * self._t.high[layer, block, head])
                # 127 steps must reach the farthest bound, and each bound is rounded outwards: what
                # is stored is never inside the keys, and a multiple of the scale stays itself.
                top = np.float32(max(np.abs(low).max(), np.abs(high).max(), LEAST_TOP))
                bits = int(round_up(np.array([top / np.float32(127)], np.float32))[0])
                bits += bool(np.float32(127) * widen(np.array([bits], np.uint16))[0] < top)
                self._t.scale[layer, block, head] = bits
                scale = self._scale(layer, block, head)
                down, up = np.floor(low / scale), np.ceil(high / scale)
                self._t.low[layer, block, head] = down - (scale * down > low)
                self._t.high[layer, block, head] = up + (scale * up < high)
                self._t.present[layer, head, block] = 1

    def _scale(self, layer: int, block: int, head: int) -> np.float32:
        bits = self._t.scale[layer, block : block + 1, head]
        return np.float32(widen(bits)[0])

    def _runs(self, slots: I64) -> Iterator[tuple[int, int]]:
        """Ranges of consecutive tokens that lie in one block."""
        first = 0
        while first < len(slots):
            end = first + 1
            if slots[first] >= 0:
                block = slots[first] // self._g.block
                while end < len(slots) and slots[end] >= 0 and slots[end] // self._g.block == block:
                    end += 1
                yield first, end
            first = end

    # ------------------------------------------------------------------ residency

    def _slot(self, layer: int, head: int, block: int) -> int:
        return int(self._t.slot_of[layer, head, block])

    def _release(self, layer: int, slot: int) -> None:
        owner = int(self._t.owner[layer, slot])
        if owner >= 0:
            head, block = divmod(owner, self._g.host_blocks)
            self._t.slot_of[layer, head, block] = -1
        self._t.owner[layer, slot] = -1
        self._t.last[layer, slot] = -1
        self._t.state[layer, slot] = SlotState.FREE

    def _assign(
        self, layer: int, head: int, block: int, slot: int, step: int, state: SlotState
    ) -> None:
        self._release(layer, slot)
        self._t.owner[layer, slot] = head * self._g.host_blocks + block
        self._t.last[layer, slot] = step
        self._t.slot_of[layer, head, block] = slot
        self._t.state[layer, slot] = state

    def _takeable(self, layer: int, may: Callable[[int], bool]) -> list[int]:
        """Free slots, then the least recently selected of those that ``may`` be taken."""
        state = self._t.state[layer]
        slots = [
            s
            for s in range(self._g.slots)
            if state[s] == SlotState.FREE or (state[s] == SlotState.RESIDENT and may(s))
        ]
        return sorted(slots, key=lambda s: (self._t.last[layer, s], s))

    def drop(self, blocks: I32) -> None:
        for layer in range(self._g.layers):
            for head in range(self._g.heads):
                for block in blocks:
                    if (slot := self._slot(layer, head, block)) >= 0:
                        self._release(layer, slot)
                    self._t.present[layer, head, block] = 0

    def pin(self, blocks: I32, step: int) -> int:
        pages = [(head, int(block)) for head in range(self._g.heads) for block in blocks]
        layers = range(self._g.layers)
        kept = [{self._slot(layer, *page) for page in pages} - {-1} for layer in layers]
        missing = [[page for page in pages if self._slot(layer, *page) < 0] for layer in layers]
        take = [self._takeable(layer, self._outside(kept[layer])) for layer in layers]
        if any(len(missing[layer]) > len(take[layer]) for layer in layers):
            raise MemoryError(f"no slots to pin {len(blocks)} blocks")
        copied = 0
        for layer in layers:
            for slot in kept[layer]:
                self._t.last[layer, slot] = step
            for (head, block), slot in zip(missing[layer], take[layer], strict=False):
                self._assign(layer, head, block, slot, step, SlotState.RESIDENT)
                if self._t.present[layer, head, block]:
                    self._t.fast[layer, slot] = self._host[layer][block, head]
                    copied += 1
        return copied

    def _outside(self, kept: set[int]) -> Callable[[int], bool]:
        return lambda slot: slot not in kept

    def place(self, rows: Rows, old: U8, step: int) -> I32:
        moves: list[tuple[int, int, int, int]] = []
        for layer in range(self._g.layers):
            missing: list[tuple[int, int]] = []
            kept: set[int] = set()
            for row in range(len(rows)):
                for head in range(self._g.heads):
                    selection = self._selection(int(rows.lanes[row]), layer, head)
                    attended = rows.tables[row, [*self._fixed(rows, row), *selection]]
                    kept |= {self._slot(layer, head, block) for block in attended}
                    for block in rows.tables[row, selection] if old[row] else ():
                        if (slot := self._slot(layer, head, block)) >= 0:
                            self._t.last[layer, slot] = step
                        elif self._t.present[layer, head, block]:
                            missing.append((head, int(block)))
            take = self._takeable(layer, self._outside(kept))
            for (head, block), slot in zip(dict.fromkeys(missing), take, strict=False):
                self._assign(layer, head, block, slot, step, SlotState.ARRIVING)
                moves.append((layer, head, block, slot))
        return np.array(moves, np.int32).reshape(-1, 4)

    def _fixed(self, rows: Rows, row: int) -> list[int]:
        """Logical blocks of the request's sinks and window."""
        blocks = self._g.blocks_for(int(rows.lengths[row]))
        sinks = min(int(rows.sinks[row]), blocks)
        return [*range(sinks), *range(max(int(rows.window[row]), sinks), blocks)]

    def _older(self, layer: int, step: int) -> Callable[[int], bool]:
        return lambda slot: bool(self._t.last[layer, slot] < step)

    # ------------------------------------------------------------------ attention

    def mirror(self, layer: int, slots: I64) -> None:
        size = self._g.element_bytes
        for host_slot in slots[slots >= 0].tolist():
            block, position = divmod(host_slot, self._g.block)
            for head in range(self._g.heads):
                if not self._resident(layer, head, block):
                    continue
                page = self._t.fast[layer, self._slot(layer, head, block)].reshape(-1, size)
                elements = self._t.elements[position]
                page[elements] = self._host[layer][block, head].reshape(-1, size)[elements]

    def _resident(self, layer: int, head: int, block: int) -> bool:
        slot = self._slot(layer, head, block)
        return slot >= 0 and bool(self._t.state[layer, slot] == SlotState.RESIDENT)

    def _selection(self, lane: int, layer: int, head: int) -> list[int]:
        count = self._t.count[lane, layer, head]
        return [int(b) for b in self._t.selected[lane, layer, head, :count]]

    def rows(self, layer: int, rows: Rows, width: int) -> tuple[I32, I32, int]:
        table = np.zeros((len(rows) * self._g.heads, width), np.int32)
        lengths = np.zeros(len(table), np.int32)
        late = 0
        for row in range(len(rows)):
            length = int(rows.lengths[row])
            blocks = self._g.blocks_for(length)
            sinks = min(int(rows.sinks[row]), blocks)
            window = max(int(rows.window[row]), sinks)
            for head in range(self._g.heads):
                selection = self._selection(int(rows.lanes[row]), layer, head)
                here = [b for b in selection if self._resident(layer, head, rows.tables[row, b])]
                late += len(selection) - len(here)
                fixed = [*range(sinks), *range(window, blocks)]
                if not all(self._resident(layer, head, rows.tables[row, b]) for b in fixed):
                    raise LookupError(f"a sink or window block is not resident in layer {layer}")
                attended = [*range(sinks), *here, *range(window, blocks)]
                slots = [self._slot(layer, head, rows.tables[row, b]) for b in attended]
                line = row * self._g.heads + head
                table[line, : len(slots)] = slots
                tail = length - (blocks - 1) * self._g.block
                lengths[line] = (len(slots) - 1) * self._g.block + tail
        return table, lengths, late

    def attend(
        self,
        layer: int,
        query: npt.NDArray[np.floating[Any]],
        table: I32,
        lengths: I32,
        softmax_scale: float,
    ) -> F32:
        """Attention of one token a request, ``query`` [n, H, G, D], over its pages of the fast
        tier: ``table`` [n * H, width] and ``lengths`` [n * H] as :meth:`rows` makes them. A page is
        keys [block, D] and then values, of the query's type.

        Returns float32 [n, H, G, D]. Not a part of the contract: where the serving framework has a
        kernel that takes such tables, that one attends.
        """
        g = self._g
        pages = self._t.fast[layer].view(query.dtype).reshape(g.slots, 2, g.block, g.dim)
        pages = pages.astype(np.float32)
        out = []
        asked = query.reshape(-1, g.group, g.dim).astype(np.float32)
        for q, line, length in zip(asked, table, lengths, strict=True):
            slots = line[: g.blocks_for(int(length))]
            key, value = pages[slots].swapaxes(0, 1).reshape(2, -1, g.dim)[:, :length]
            logits = np.float32(softmax_scale) * (q @ key.T)
            weights = np.exp(logits - logits.max(axis=1, keepdims=True))
            out.append(weights @ value / weights.sum(axis=1, keepdims=True))
        return np.array(out, np.float32).reshape(query.shape)

    # ------------------------------------------------------------------ selection

    def masses(self, layer: int, head: int, blocks: I32, query: F32, softmax_scale: float) -> F32:
        """Score of host blocks int32 [n] for the query [G, D] of one KV head: float32 [n]."""
        scale = widen(self._t.scale[layer, blocks, head])[:, None]
        low = scale * self._t.low[layer, blocks, head].astype(np.float32)
        high = scale * self._t.high[layer, blocks, head].astype(np.float32)
        bound = np.float32(softmax_scale) * np.stack(
            [np.maximum(q * low, q * high).sum(axis=1, dtype=np.float32) for q in query]
        )
        weights = np.exp(bound - bound.max(axis=1, keepdims=True))
        mass: F32 = (weights / weights.sum(axis=1, keepdims=True)).sum(axis=0, dtype=np.float32)
        return np.where(np.isnan(mass), np.float32(0), mass)

    def _best(self, mass: F32, first: int, last: int, most: int) -> list[int]:
        """The ``most`` heaviest of the blocks from ``first`` to ``last``, ascending."""
        return sorted(sorted(range(first, last), key=lambda b: (-mass[b], b))[:most])

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
        resident = compared = agreed = chosen_pages = 0
        missing: list[tuple[float, int, int, int]] = []  # (score, row, head, logical block)
        for row in range(len(rows)):
            blocks = self._g.blocks_for(int(rows.lengths[row]))
            first = min(int(rows.sinks[row]), blocks)
            last = min(max(int(rows.window[row]), first), blocks)
            for head in range(self._g.heads):
                mass = self.masses(
                    layer, head, rows.tables[row, :blocks], query[row, head], softmax_scale
                )
                allowed = int(budget[row]) * int(self._t.boost[layer, head])
                most = min(allowed, self._t.selected.shape[3])
                chosen = self._best(mass, first, last, most)
                lane = int(rows.lanes[row])
                old = [b for b in self._selection(lane, layer, head) if b < blocks]
                if flags[row] & SelectFlag.COMPARE:
                    compared += len(chosen)
                    agreed += len({*chosen} & {*old})
                if flags[row] & SelectFlag.KEEP:
                    mass[old] *= np.float32(HYSTERESIS)
                    chosen = self._best(mass, first, last, most)
                self._t.selected[lane, layer, head, : len(chosen)] = chosen
                self._t.count[lane, layer, head] = len(chosen)
                chosen_pages += len(chosen)
                if flags[row] & SelectFlag.CHOOSE_ONLY:
                    continue
                scored = [(float(mass[b]), b) for b in chosen]
                scored += [(np.inf, b) for b in (*range(first), *range(last, blocks))]
                for score, b in scored:
                    block = int(rows.tables[row, b])
                    resident += np.isfinite(score) and self._resident(layer, head, block)
                    if (slot := self._slot(layer, head, block)) >= 0:
                        self._t.last[layer, slot] = step
                    else:
                        missing.append((score, row, head, b))
        loads: list[tuple[int, int, int, int]] = []
        wants: list[tuple[int, int, int]] = []
        starved = capped = spent = 0
        take = self._takeable(layer, self._older(layer, step))
        for score, row, head, b in sorted(missing, key=lambda m: -m[0]):
            block = int(rows.tables[row, b])
            if self._slot(layer, head, block) >= 0:
                continue  # shared with an earlier request
            admission = int(flags[row] & SelectFlag.ADMISSION)
            uncapped = bool(admission) or np.isinf(score)
            if not uncapped and spent >= cap:
                capped += 1
            elif not self._t.present[layer, head, block]:
                wants.append((row, head, b))
                spent += not uncapped
            elif not take:
                starved += 1
            else:
                slot = take.pop(0)
                self._assign(layer, head, block, slot, step, SlotState.ARRIVING)
                loads.append((head, block, slot, admission))
                spent += not uncapped
        return Selected(
            np.array(loads, np.int32).reshape(-1, 4),
            np.array(wants, np.int32).reshape(-1, 3),
            chosen_pages,
            int(resident),
            compared,
            agreed,
            starved,
            capped,
        )

    # ------------------------------------------------------------------ pages

    def copy(self, moves: I32, progress: I64) -> None:
        for layer, head, block, slot in moves:
            self._t.fast[layer, slot] = self._host[layer][block, head]
            self._t.state[layer, slot] = SlotState.RESIDENT
            progress[0] += 1

    def read_pages(self, pages: I32, out: U8) -> None:
        lines = self._lines(pages, out)
        for line, (layer, head, block) in zip(lines, pages, strict=True):
            line[:] = self._host[layer][block, head]

    def write_pages(self, pages: I32, data: U8) -> None:
        for line, (layer, head, block) in zip(self._lines(pages, data), pages, strict=True):
            self._host[layer][block, head] = line
            self._t.present[layer, head, block] = 1

    def _lines(self, pages: I32, data: U8) -> npt.NDArray[np.uint8]:
        if data.size != len(pages) * self._g.page_bytes:
            raise ValueError(f"{len(pages)} pages are not {data.size} bytes")
        return data.reshape(len(pages), self._g.page_bytes)
