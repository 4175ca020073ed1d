"""The contract on a GPU, in Triton; on a CPU under Triton's interpreter.

The engine's host tier is pinned memory that the device reads by address, so a page is copied by
the program that needs it and the host takes no part.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from triton import cdiv, next_power_of_2

from oasis_runtime.core.tables import SlotState, Tables, plain_elements
from oasis_runtime.kernels import triton_programs as programs
from oasis_runtime.kernels.contract import F32, HYSTERESIS, I32, I64, U8, Rows, Selected
from oasis_runtime.kernels.device import DeviceTables

_TILE = 64
_LEAST_DOT = 16
"""Rows and columns that a tensor core's product has at least."""
_ELEMENT = {1: torch.int8, 2: torch.int16, 4: torch.int32}
"""By bytes of an element: what it is copied as."""
_NEVER = np.iinfo(np.int32).max


@dataclass(frozen=True)
class _DeviceRows:
    """Rows on the device."""

    lanes: torch.Tensor
    tables: torch.Tensor
    sinks: torch.Tensor
    window: torch.Tensor
    lengths: torch.Tensor


class TritonKernels:
    """See :class:`oasis_runtime.kernels.contract.Kernels`.

    Arguments and results are numpy, as in the contract; the tables stay on ``device``.
    """

    def __init__(self, tables: Tables, device: torch.device) -> None:
        g = tables.geometry
        self._g = g
        self._t = DeviceTables.of(tables, device)
        self._device = device
        self._boost = tables.boost  # on the host: it changes while the engine runs
        self._plain = np.array_equal(tables.elements, plain_elements(g))
        layer_bytes = g.host_blocks * g.heads * g.page_bytes
        self._host = [
            np.ctypeslib.as_array(
                (ctypes.c_uint8 * layer_bytes).from_address(int(address))
            ).reshape(g.host_blocks, g.heads, g.page_bytes)
            for address in tables.host
        ]

    def _moved(self, array: npt.NDArray[np.generic]) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device)

    def _rows(self, rows: Rows) -> _DeviceRows:
        return _DeviceRows(
            self._moved(rows.lanes),
            self._moved(rows.tables),
            self._moved(rows.sinks),
            self._moved(rows.window),
            self._moved(rows.lengths),
        )

    def _empty(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device=self._device)

    # ------------------------------------------------------------------ summaries

    def summarize(self, layer: int, key: F32, slots: I64) -> None:
        g, t = self._g, self._t
        key_d = self._moved(key)
        for runs in _rounds(slots, g.block):
            programs.summarize[(len(runs), g.heads, len(key))](
                key_d, self._moved(runs), t.bounds, t.scale, t.present,
                layer, len(slots), g.host_blocks, g.heads, g.dim, DIM=next_power_of_2(g.dim),
            )  # fmt: skip

    # ------------------------------------------------------------------ residency

    def drop(self, blocks: I32) -> None:
        g, t = self._g, self._t
        if len(blocks):
            programs.drop[(g.layers * g.heads, cdiv(len(blocks), _TILE))](
                self._moved(blocks), len(blocks), t.slot_of, t.owner, t.last, t.state, t.present,
                g.host_blocks, g.heads, g.slots, TILE=_TILE,
            )  # fmt: skip

    def _takeable(self, layers: slice, may: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Slots [l, S] in the order to take them, and how many [l] may be taken: free ones, then
        the least recently selected of those that ``may`` [l, S]."""
        state, last = self._t.state[layers], self._t.last[layers]
        allowed = (state == SlotState.FREE) | ((state == SlotState.RESIDENT) & may)
        order = torch.where(allowed, last, _NEVER).sort(dim=1, stable=True).indices
        return order, allowed.sum(dim=1)

    def _slots_of(self, blocks: torch.Tensor) -> torch.Tensor:
        """Slots [L, H, *] of host blocks [*], -1 for none."""
        return self._t.slot_of[:, :, blocks.long()]

    def _mark(self, slots: torch.Tensor) -> torch.Tensor:
        """Which slots [L, S] occur in ``slots`` [L, *], where -1 is none."""
        flat = slots.flatten(1).long()
        marks = self._empty(self._g.layers, self._g.slots + 1, dtype=torch.bool)
        marks.scatter_(1, torch.where(flat < 0, self._g.slots, flat), True)
        return marks[:, :-1]

    def _update(self, moves: torch.Tensor, step: int, state: SlotState) -> None:
        g, t = self._g, self._t
        if len(moves):
            programs.update[(cdiv(len(moves), _TILE),)](
                moves, len(moves), t.slot_of, t.owner, t.last, t.state,
                g.host_blocks, g.heads, g.slots, step, int(state), TILE=_TILE,
            )  # fmt: skip

    def _gather(self, moves: torch.Tensor) -> None:
        g, t = self._g, self._t
        if len(moves):
            words = g.page_bytes // 4
            programs.gather[(len(moves),)](
                moves, t.host, t.fast, t.state, g.heads, g.slots, words,
                TILE=min(1024, next_power_of_2(words)),
            )  # fmt: skip

    def pin(self, blocks: I32, step: int) -> int:
        t = self._t
        blocks_d = self._moved(blocks)
        slots = self._slots_of(blocks_d)
        kept = self._mark(slots)
        missing = slots < 0
        order, room = self._takeable(slice(None), ~kept)
        wanted = missing.sum(dim=(1, 2))
        if bool(((wanted > room) & (wanted > 0)).any()):
            raise MemoryError(f"no slots to pin {len(blocks)} blocks; raise tiers.fast_bytes")
        t.last[kept] = step
        rank = missing.flatten(1).cumsum(1).reshape(missing.shape) - 1
        layer, head, at = missing.nonzero(as_tuple=True)
        slot = order[layer, rank[layer, head, at]]
        block = blocks_d[at].long()
        moves = torch.stack([layer, head, block, slot], dim=1).int()
        self._update(moves, step, SlotState.RESIDENT)
        here = moves[t.present[layer, head, block] != 0].contiguous()
        self._gather(here)
        return len(here)

    def place(self, rows: Rows, old: U8, step: int) -> I32:
        g, t = self._g, self._t
        if not len(rows):
            return np.empty((0, 4), np.int32)
        r = self._rows(rows)
        used = (r.lengths + (g.block - 1)) // g.block
        i = torch.arange(rows.tables.shape[1], device=self._device)
        sinks = torch.minimum(r.sinks, used)
        opening = torch.maximum(r.window, sinks)
        local = (i < sinks[:, None]) | ((i >= opening[:, None]) & (i < used[:, None]))
        # [n, L, H, blocks], and so are all below.
        chosen = self._chosen(r, rows.tables.shape[1])
        slots = self._slots_of(r.tables.flatten()).reshape(g.layers, g.heads, *r.tables.shape)
        slots = slots.permute(2, 0, 1, 3)
        attended = torch.where(chosen | local[:, None, None], slots, -1)
        kept = self._mark(attended.transpose(0, 1))
        mine = chosen & (self._moved(old) != 0)[:, None, None, None]
        touched = self._mark(torch.where(mine, slots, -1).transpose(0, 1))
        t.last[touched] = step
        present = t.present[:, :, r.tables.flatten().long()]
        present = present.reshape(g.layers, g.heads, *r.tables.shape).permute(2, 0, 1, 3)
        missing = mine & (slots < 0) & (present != 0)
        layer, row, head, at = missing.transpose(0, 1).nonzero(as_tuple=True)
        block = r.tables[row, at].long()
        # A page that several requests lack counts once, where it comes first.
        same = ((layer * g.heads + head) * g.host_blocks + block).sort(stable=True)
        first = torch.cat([same.values.new_ones(1), same.values.diff()]) != 0
        kept_at = same.indices[first[: len(same.values)]].sort().values
        pages = torch.stack([layer, head, block], dim=1)[kept_at]
        order, room = self._takeable(slice(None), ~kept)
        before = torch.searchsorted(pages[:, 0].contiguous(), pages[:, 0].contiguous())
        rank = torch.arange(len(pages), device=self._device) - before
        fits = rank < room[pages[:, 0]]
        pages, rank = pages[fits], rank[fits]
        slot = order[pages[:, 0], rank]
        moves = torch.cat([pages, slot[:, None]], dim=1).int().contiguous()
        self._update(moves, step, SlotState.ARRIVING)
        return np.asarray(moves.cpu().numpy(), np.int32)

    def _chosen(self, r: _DeviceRows, width: int) -> torch.Tensor:
        """Whether the rows' selections have a logical block: bool [n, L, H, width]."""
        lanes = r.lanes.long()
        selected, count = self._t.selected[lanes].long(), self._t.count[lanes]
        valid = torch.arange(selected.shape[3], device=self._device) < count[..., None]
        marks = self._empty(*selected.shape[:3], width + 1, dtype=torch.bool)
        marks.scatter_(3, torch.where(valid & (selected < width), selected, width), True)
        return marks[..., :-1]

    # ------------------------------------------------------------------ attention

    def mirror(self, layer: int, slots: I64) -> None:
        g, t = self._g, self._t
        if len(slots):
            programs.mirror[(len(slots), g.heads)](
                self._moved(slots), t.host, t.fast.view(_ELEMENT[g.element_bytes]), t.elements,
                t.slot_of, t.state, layer, g.host_blocks, g.heads, g.slots, g.block, g.dim,
                PAIR=next_power_of_2(2 * g.dim),
            )  # fmt: skip

    def rows(self, layer: int, rows: Rows, width: int) -> tuple[I32, I32, int]:
        g, t, n = self._g, self._t, len(rows)
        table = self._empty(n * g.heads, width, dtype=torch.int32)
        lengths, late, absent = (self._empty(n * g.heads, dtype=torch.int32) for _ in range(3))
        if n:
            r, most = self._rows(rows), t.selected.shape[3]
            programs.rows[(n, g.heads)](
                r.lanes, r.tables, r.sinks, r.window, r.lengths, t.selected, t.count,
                t.slot_of, t.state, table, lengths, late, absent,
                layer, g.layers, rows.tables.shape[1], width, most,
                g.host_blocks, g.heads, g.slots, g.block,
                BLOCKS=next_power_of_2(rows.tables.shape[1]), MOST=next_power_of_2(most),
            )  # fmt: skip
        if bool(absent.any()):
            raise LookupError(f"a sink or window block is not resident in layer {layer}")
        return table.cpu().numpy(), lengths.cpu().numpy(), int(late.sum())

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        table: torch.Tensor,
        lengths: torch.Tensor,
        softmax_scale: float,
    ) -> torch.Tensor:
        """Attention of one token a request, ``query`` [n, H, G, D], over its pages of the fast
        tier: ``table`` int32 [n * H, width] and ``lengths`` int32 [n * H] as :meth:`rows` makes
        them, on the device. A page is keys [block, D] and then values, of the query's type.

        Returns [n, H, G, D]. Raises ValueError when the tables lay pages out in another way.
        """
        g = self._g
        if not self._plain:
            raise ValueError("attend needs pages of keys [B, D], then values; see Tables.elements")
        out = torch.empty_like(query)
        if len(query):
            programs.attend[(len(lengths),)](
                query.contiguous(), self._t.fast.view(query.dtype), table, lengths, out,
                softmax_scale, layer, g.slots, table.shape[1], g.group, g.dim, g.block,
                GROUP=max(_LEAST_DOT, next_power_of_2(g.group)),
                BLOCK=max(_LEAST_DOT, next_power_of_2(g.block)), DIM=next_power_of_2(g.dim),
            )  # fmt: skip
        return out

    # ------------------------------------------------------------------ selection

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
        g, t, n = self._g, self._t, len(rows)
        if not n:
            return Selected(np.empty((0, 4), np.int32), np.empty((0, 3), np.int32), *6 * [0])
        r, width, most = self._rows(rows), rows.tables.shape[1], t.selected.shape[3]
        scores = self._empty(n, g.heads, g.group, width, dtype=torch.float32)
        programs.score[(n, g.heads, cdiv(width, _TILE))](
            self._moved(query), r.tables, r.lengths, t.bounds, t.scale, scores, softmax_scale,
            layer, width, width, g.host_blocks, g.heads, g.group, g.dim, g.block,
            TILE=_TILE, DIM=next_power_of_2(g.dim),
        )  # fmt: skip
        before = self._chosen(r, width)[:, layer].to(torch.int8)
        lacking = self._empty(n, g.heads, width, dtype=torch.float32)
        totals = self._empty(n, g.heads, 4, dtype=torch.int32)
        flags_d = self._moved(flags)
        programs.choose[(n, g.heads)](
            scores, r.lanes, r.tables, r.sinks, r.window, r.lengths, self._moved(budget),
            self._moved(self._boost), flags_d, before, t.selected, t.count, t.slot_of, t.last,
            t.state, lacking, totals,
            layer, g.layers, width, width, most, g.host_blocks, g.heads, g.group, g.slots, g.block,
            step, BLOCKS=next_power_of_2(width), HYSTERESIS=HYSTERESIS,
        )  # fmt: skip
        order = lacking.flatten().sort(descending=True, stable=True).indices
        missing = (lacking >= 0).sum().reshape(1)
        take, room = self._takeable(slice(layer, layer + 1), t.last[layer : layer + 1] < step)
        loads = self._empty(lacking.numel(), 4, dtype=torch.int32)
        wants = self._empty(lacking.numel(), 3, dtype=torch.int32)
        found = self._empty(4, dtype=torch.int32)
        programs.admit[(1,)](
            order, missing, lacking, take, room, r.tables, flags_d,
            t.slot_of, t.owner, t.last, t.state, t.present, loads, wants, found,
            layer, width, width, g.host_blocks, g.heads, g.slots, cap, step, num_warps=1,
        )  # fmt: skip
        n_loads, n_wants, starved, capped = found.tolist()
        chosen, resident, compared, agreed = totals.sum(dim=(0, 1)).tolist()
        return Selected(
            loads[:n_loads].cpu().numpy(),
            wants[:n_wants].cpu().numpy(),
            chosen,
            resident,
            compared,
            agreed,
            starved,
            capped,
        )

    # ------------------------------------------------------------------ pages

    def copy(self, moves: I32, progress: I64) -> None:
        self._gather(self._moved(moves))
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        progress[0] += len(moves)

    def read_pages(self, pages: I32, out: U8) -> None:
        for line, (layer, head, block) in zip(self._lines(pages, out), pages, strict=True):
            line[:] = self._host[layer][block, head]

    def write_pages(self, pages: I32, data: U8) -> None:
        for line, (layer, head, block) in zip(self._lines(pages, data), pages, strict=True):
            self._host[layer][block, head] = line
        layer, head, block = self._moved(pages).long().unbind(1)
        self._t.present[layer, head, block] = 1

    def _lines(self, pages: I32, data: U8) -> npt.NDArray[np.uint8]:
        if data.size != len(pages) * self._g.page_bytes:
            raise ValueError(f"{len(pages)} pages are not {data.size} bytes")
        return data.reshape(len(pages), self._g.page_bytes)


def _rounds(slots: I64, block: int) -> list[I32]:
    """Runs of consecutive tokens in one block, int32 [n, 4] of (first, end, host block, starts
    afresh), in rounds that have no block twice: runs of one round are independent."""
    owner = np.where(slots >= 0, slots // block, -1)
    first = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]]) if len(slots) else np.empty(0, int)
    end = np.r_[first[1:], len(slots)]
    valid = owner[first] >= 0
    first, end = first[valid], end[valid]
    fresh = slots[first] % block == 0
    runs = np.stack([first, end, owner[first], fresh], axis=1).astype(np.int32)
    rounds = []
    while len(runs):
        _, now = np.unique(runs[:, 2], return_index=True)
        rounds.append(runs[np.sort(now)])
        runs = np.delete(runs, now, axis=0)
    return rounds
