"""The sparse-KV engine of one rank: what a serving framework's worker calls in each step.

Order of calls: :meth:`SparseEngine.begin_step`; then for each layer :meth:`~SparseEngine.write`,
:meth:`~SparseEngine.attend`, the framework's attention, :meth:`~SparseEngine.select`; then
:meth:`~SparseEngine.end_step`. All on one thread; only the copies run elsewhere.

The set that a step attends to was chosen in the step before (OasisKV paper, section 4): the pages
that it lacks come while the rest of that step and the layers before them compute.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from oasis_runtime.contract import PrefetchConfig, SelectionConfig
from oasis_runtime.core.cap import prefetch_cap
from oasis_runtime.core.drafting import DraftMethod
from oasis_runtime.core.escalation import FACTOR, Escalation
from oasis_runtime.core.prefetch import Prefetcher
from oasis_runtime.core.request_table import RequestTable
from oasis_runtime.core.requests import StepRequest, Tracked
from oasis_runtime.core.smoothing import WEIGHT, QueryMeans
from oasis_runtime.core.statistics import FallbackReason, Statistics
from oasis_runtime.core.tables import SlotState, Tables
from oasis_runtime.kernels.contract import F32, I32, I64, U8, Kernels, Rows, SelectFlag

_log = logging.getLogger(__name__)

REST_STEPS = 16
"""A request that found the fast tier full stays dense so long, so that others that come and go do
not make it load a set in one step and lose it in the next; and so does one whose pages could not be
copied, before they are tried again."""

COMPARED_STEPS = 16
"""In every so many steps the sets that were predicted are compared with those of the tokens' own
queries, which costs a second selection."""

_NO_MOVES: I32 = np.empty((0, 4), np.int32)


@dataclass(frozen=True)
class Step:
    """How the requests of a step are served; indices are positions in the batch.

    ``sparse`` attend to pages of the fast tier, ``dense`` to all of the host tier. ``selecting``
    choose the set of their next step, with the query of their last scheduled token.
    """

    index: int
    batch: Sequence[StepRequest]
    sparse: tuple[int, ...]
    dense: tuple[int, ...]
    selecting: tuple[int, ...]
    attend_rows: Rows | None
    select_rows: Rows | None
    width: int
    budget: I32
    flags: U8
    compare: U8 | None
    """Flags of a selection that only compares, where the step has one."""
    fresh: npt.NDArray[np.bool_] | None
    """Of the selecting requests, those that have no queries yet; None where none is."""
    cap: int


@dataclass
class _Planned:
    """Copies and remote wants that the layers of a step have asked for so far. ``loads``: by layer,
    as :class:`~oasis_runtime.kernels.contract.Selected` has them."""

    loads: list[tuple[int, I32]] = field(default_factory=list)
    wants: dict[str, list[I32]] = field(default_factory=dict)

    def moves(self) -> tuple[I32, I32]:
        """Pages int32 [n, 4] of (layer, head, host block, slot), ascending in layer: those of
        admissions, and the others."""
        if not self.loads:
            return _NO_MOVES, _NO_MOVES
        loads = np.concatenate([found for _, found in self.loads])
        moves = np.empty_like(loads)
        moves[:, 0] = np.repeat([layer for layer, _ in self.loads], [len(f) for _, f in self.loads])
        moves[:, 1:] = loads[:, :3]
        admitted = loads[:, 3] != 0
        return moves[admitted], moves[~admitted]


class SparseEngine:
    def __init__(
        self,
        tables: Tables,
        kernels: Kernels,
        selection: SelectionConfig,
        prefetch: PrefetchConfig,
        decodes: bool = True,
        draft_methods: Sequence[DraftMethod] = (),
        query_weight: float = WEIGHT,
    ) -> None:
        """``decodes``: False where a request's decode steps run in another engine; sets are then
        chosen for that engine and nothing is kept resident. ``draft_methods``: what the framework
        can draft with, the best first, where the engine is to say which one pays.
        ``query_weight``: of the newest query in the mean that selects."""
        self._decodes = decodes
        self._draft_methods = draft_methods
        self.tables = tables
        self.kernels = kernels
        self.statistics = Statistics()
        self.requests = RequestTable(tables, selection)
        self.escalation = Escalation(tables.geometry.layers, tables.geometry.heads)
        self._selection = selection
        self._prefetch_config = prefetch
        g = tables.geometry
        self._queries = QueryMeans(len(tables.selected), g, query_weight)
        self._prefetcher = Prefetcher(
            kernels, g.layers, g.page_bytes, prefetch.threads, self._copies_failed
        )
        self._unread: set[int] = set()
        """Host blocks whose pages could not be copied since the last step began."""
        self._index = 0
        self._step: Step | None = None
        self._mirrored: I64 = np.empty(0, np.int64)
        self._planned = _Planned()
        self._started = 0.0
        self._step_seconds = 0.0
        self.cap = 1.0
        """Share of the budget that a step may load, as last set."""

    # ---------------------------------------------------------------------- step

    def begin_step(self, batch: Sequence[StepRequest]) -> Step:
        """Decide how each request is served and make what must be resident so."""
        self._started = time.perf_counter()
        self._index += 1
        self._planned = _Planned()
        self._prefetcher.reap()
        self._drop_rewritten(batch)
        for r in batch:
            self.requests.begin_step(r)
        self._hold_unread(batch)
        sparse, room = self._sparse(batch)
        dense = sorted(set(range(len(batch))) - set(sparse))
        selecting = self._selecting(batch, sparse, dense, room)
        self._pin([(batch[i], self.requests[batch[i].request_id]) for i in sparse])
        self._place(batch, sparse)
        self.statistics.steps["sparse"] += len(sparse)
        self.statistics.steps["dense"] += sum(batch[i].length > batch[i].prompt for i in dense)
        self._mirrored = self._mirrored_slots(batch)
        self._step = self._plan(batch, sparse, dense, selecting)
        return self._step

    def _sparse(self, batch: Sequence[StepRequest]) -> tuple[Sequence[int], int]:
        """The requests served sparsely in this step, and the slots a layer that they leave."""
        state = [self.requests[r.request_id] for r in batch]
        room, sparse = self.tables.geometry.slots, []
        for i in sorted(range(len(batch)), key=lambda i: not state[i].remote):
            r, t = batch[i], state[i]
            reason = self._dense_reason(r, t, room)
            if reason is None and not self.requests.unpark(t, r.length):
                reason = "no_selection"
            t.parked = None
            if reason is None:
                room -= self._demand(r, t)
                sparse.append(i)
            elif r.computed >= r.prompt and not self._prefills(r):
                self._count_fallback(t, reason)
        return sorted(sparse), room

    def _selecting(
        self,
        batch: Sequence[StepRequest],
        sparse: Sequence[int],
        dense: Sequence[int],
        room: int,
    ) -> Sequence[int]:
        """The requests that choose a set for their next step: those that are sparse, and those
        that may become so. One that has no room then must not take slots from the others."""
        selecting = list(sparse)
        for i in dense:
            r, t = batch[i], self.requests[batch[i].request_id]
            t.selection_length = 0
            if r.length < r.prompt or r.length < t.budget.dense_up_to:
                continue
            if t.hold.holds(r.length + 1):
                continue
            if self._index < max(t.crowded_until, t.unread_until):
                continue
            demand = self._demand(r, t) if self._decodes else 0
            if demand > room:
                t.crowded_until = self._index + REST_STEPS
            elif self.requests.give_lane(t):
                room -= demand
                selecting.append(i)
        return sorted(selecting)

    def _demand(self, r: StepRequest, t: Tracked) -> int:
        """Slots a layer that the request may hold in this step and the next."""
        g = self.tables.geometry
        most = t.budget.most_blocks(r.length)
        return min(most, g.blocks_for(r.length) + 1) * g.heads

    def _prefills(self, r: StepRequest) -> bool:
        """More tokens than a window allows for: a prompt, or what a preempted request lost."""
        return r.scheduled > self.tables.geometry.block

    def _drop_rewritten(self, batch: Sequence[StepRequest]) -> None:
        """Blocks that this step writes from their first token on hold nothing known before."""
        g = self.tables.geometry
        fresh = [r.blocks[g.blocks_for(r.computed) : g.blocks_for(r.length)] for r in batch]
        blocks = np.concatenate(fresh) if fresh else np.empty(0, np.int32)
        if len(blocks):
            self._drop(np.ascontiguousarray(blocks, np.int32))

    def _drop(self, blocks: I32) -> None:
        self._settle(blocks)
        self.kernels.drop(blocks)
        self._unread.difference_update(blocks.tolist())

    def _settle(self, blocks: I32) -> None:
        """Wait for the copies under way when one of them is of these host blocks."""
        if not self._prefetcher.busy:
            return
        slots = self.tables.slot_of[:, :, blocks]
        layers = np.arange(len(slots))[:, None, None]
        arriving = self.tables.state[layers, slots] == SlotState.ARRIVING
        if bool((arriving & (slots >= 0)).any()):
            self.statistics.wait_seconds += self._prefetcher.drain()

    def _copies_failed(self, moves: I32, error: OSError) -> None:
        """Moves [n, 4] that were given slots came to nothing: whoever selects them asks again."""
        self.tables.release(moves[:, 0], moves[:, 3])
        self._unread.update(moves[:, 2].tolist())
        self.statistics.failed += len(moves)
        _log.warning("%d pages could not be copied to the fast tier: %s", len(moves), error)

    def _hold_unread(self, batch: Sequence[StepRequest]) -> None:
        """Requests with a page that could not be copied are dense for a while, and exact."""
        if not self._unread:
            return
        blocks = np.array(list(self._unread), np.int32)
        self._unread.clear()
        for r in batch:
            used = r.blocks[: self.tables.geometry.blocks_for(r.length)]
            if np.isin(used, blocks).any():
                self.requests[r.request_id].unread_until = self._index + REST_STEPS

    def _dense_reason(self, r: StepRequest, t: Tracked, room: int) -> FallbackReason | None:
        if not self._decodes:
            return "prefill_role"
        if t.remote:
            return None  # its other pages are elsewhere: only the sparse path can serve it
        if r.computed < t.budget.dense_up_to:
            return "mode" if t.budget.mode == "dense" else "short_context"
        if t.hold.holds(r.length):
            return "low_recall"
        if self._index <= t.unread_until:
            return "copy_failed"
        if self._prefills(r) or (t.parked is None and r.computed < r.prompt):
            return "no_selection"
        if t.parked is None and t.selection_length == 0:
            return "fast_tier_full" if self._index <= t.crowded_until else "no_selection"
        if self._demand(r, t) > room:
            return "fast_tier_full"
        return None

    def _count_fallback(self, t: Tracked, reason: FallbackReason) -> None:
        if reason not in t.reasons:
            t.reasons |= {reason}
            self.statistics.fallbacks[reason] += 1

    def _pin(self, requests: Sequence[tuple[StepRequest, Tracked]]) -> None:
        g = self.tables.geometry
        blocks = []
        for r, t in requests:
            used = r.blocks[: g.blocks_for(r.length)]
            blocks += [used[: t.budget.sinks], used[t.window :]]
        if not blocks:
            return
        unique = np.unique(np.concatenate(blocks)).astype(np.int32)
        # Pinned pages are written and read whatever happens, so none may still be arriving.
        self._settle(unique)
        try:
            copied = self.kernels.pin(unique, self._index)
        except MemoryError:  # slots that copies under way hold are free again after them
            self.statistics.wait_seconds += self._prefetcher.drain()
            copied = self.kernels.pin(unique, self._index)
        self.statistics.moved_bytes["host", "fast", "pin"] += copied * g.page_bytes

    def _place(self, batch: Sequence[StepRequest], sparse: Sequence[int]) -> None:
        """Bring in what selections name and the step before could not: those that a peer made,
        those of requests that paused, whose pages others could take, and pages that landed since.
        """
        state = [self.requests[r.request_id] for r in batch]
        old = np.array(
            [state[i].landed or state[i].chosen_at < self._index - 1 for i in sparse], np.uint8
        )
        for i in sparse:
            state[i].landed = False
        if old.any():
            self.statistics.wait_seconds += self._prefetcher.drain()
            windows = np.array([state[i].window for i in sparse], np.int32)
            rows = self._rows(batch, sparse, windows)
            self._copy_now(self.kernels.place(rows, old, self._index))

    def _copy_now(self, moves: I32) -> None:
        if not len(moves):
            return
        start = time.perf_counter()
        self._prefetcher.submit(moves)
        self._prefetcher.drain()
        self.statistics.wait_seconds += time.perf_counter() - start
        moved = len(moves) * self.tables.geometry.page_bytes
        self.statistics.moved_bytes["host", "fast", "admission"] += moved

    def _rows(self, batch: Sequence[StepRequest], members: Sequence[int], window: I32) -> Rows:
        g = self.tables.geometry
        requests = [batch[i] for i in members]
        width = max(g.blocks_for(r.length) for r in requests)
        tables = np.zeros((len(requests), width), np.int32)
        for row, r in zip(tables, requests, strict=True):
            row[: g.blocks_for(r.length)] = r.blocks[: g.blocks_for(r.length)]
        tracked = [self.requests[r.request_id] for r in requests]
        return Rows(
            lanes=np.array([t.lane for t in tracked], np.int32),
            tables=tables,
            sinks=np.array([t.budget.sinks for t in tracked], np.int32),
            window=window,
            lengths=np.array([r.length for r in requests], np.int32),
        )

    def _plan(
        self,
        batch: Sequence[StepRequest],
        sparse: Sequence[int],
        dense: Sequence[int],
        selecting: Sequence[int],
    ) -> Step:
        """The step's kernel arguments, the same for all layers."""
        g = self.tables.geometry
        state = [self.requests[r.request_id] for r in batch]
        attend_rows = select_rows = None
        width = cap = 0
        budget, flags = np.empty(0, np.int32), np.empty(0, np.uint8)
        compare = fresh = None
        if sparse:
            attend_rows = self._rows(
                batch, sparse, np.array([state[i].window for i in sparse], np.int32)
            )
            width = max(
                FACTOR * state[i].budget.selected_at(batch[i].length)
                + state[i].budget.sinks
                + g.blocks_for(batch[i].length)
                - state[i].window
                for i in sparse
            )
        if selecting:
            windows = [state[i].budget.window_start(batch[i].length) for i in selecting]
            select_rows = self._rows(batch, selecting, np.array(windows, np.int32))
            budget = np.array(
                [state[i].budget.selected_at(batch[i].length) for i in selecting], np.int32
            )
            room = g.slots - sum(self._demand(batch[i], state[i]) for i in selecting)
            self._escalate(int(budget.sum()), room)
            served = set(sparse)
            flags = np.array(
                [
                    SelectFlag.KEEP
                    if i in served
                    else SelectFlag.ADMISSION | (0 if self._decodes else SelectFlag.CHOOSE_ONLY)
                    for i in selecting
                ],
                np.uint8,
            )
            # What a peer chose came without the queries that it chose with.
            new = [i not in served or state[i].chosen_at < 0 for i in selecting]
            fresh = np.array(new) if any(new) else None
            compare = self._comparing([i in served and batch[i].scheduled == 1 for i in selecting])
            fixed = self._prefetch_config.cap
            most = int(budget.max()) * g.block_bytes
            self.cap = fixed or prefetch_cap(
                self._prefetcher.bytes_per_second, self._step_seconds, len(selecting), most
            )
            cap = max(1, int(self.cap * int(budget.sum()) * g.heads))
        return Step(
            index=self._index,
            batch=batch,
            sparse=tuple(sparse),
            dense=tuple(dense),
            selecting=tuple(selecting),
            attend_rows=attend_rows,
            select_rows=select_rows,
            width=width,
            budget=budget,
            flags=flags,
            compare=compare,
            fresh=fresh,
            cap=cap,
        )

    def _comparing(self, own: Sequence[bool]) -> U8 | None:
        """``own``: requests whose query is that of the token which the last set was for."""
        if self._index % COMPARED_STEPS or not any(own):
            return None
        flags = [SelectFlag.CHOOSE_ONLY | (SelectFlag.COMPARE if yes else 0) for yes in own]
        return np.array(flags, np.uint8)

    def _mirrored_slots(self, batch: Sequence[StepRequest]) -> I64:
        """Host slots of the step's tokens whose blocks have resident pages: those of the sparse
        requests, and of others that were sparse or share a block with one."""
        g = self.tables.geometry
        parts = []
        for r in batch:
            written = r.blocks[r.computed // g.block : g.blocks_for(r.length)]
            if (self.tables.slot_of[:, :, written] >= 0).any():
                self._settle(written)
                position = np.arange(r.computed, r.length)
                parts.append(r.blocks[position // g.block] * np.int64(g.block) + position % g.block)
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _escalate(self, budget: int, room: int) -> None:
        """Let escalated heads select more in this step when the fast tier has the slots: ``room``
        a layer, besides those of the requests' own budgets, which add up to ``budget``."""
        needed = (FACTOR - 1) * self.escalation.most * budget
        fits = 0 < needed <= room
        self.tables.boost[:] = self.escalation.boost() if fits else 1

    def audited(self, request_id: str, layer: int, head: int, recall: float, error: float) -> None:
        """A step's attention of one KV head of a request was compared with dense attention: the
        share of its mass on the attended tokens, and the relative L2 error of its output."""
        self.statistics.recalls.append(recall)
        self.statistics.errors.append(error)
        if self._selection.escalate:
            self.escalation.observe(layer, head, recall)
        t = self.requests.get(request_id)
        if t is not None:
            t.hold.observe(recall, t.computed, self._selection.min_recall)

    def verified(self, request_id: str, drafted: int, accepted: int) -> None:
        """A step of the request had ``drafted`` drafts, of which so many were right."""
        t = self.requests.get(request_id)
        if t is None:
            return
        dropped = t.drafts.observe(drafted, accepted, t.computed, self._draft_methods)
        if dropped is not None:
            self.statistics.drafts_dropped[dropped] += 1

    def draft_method(self, request_id: str) -> DraftMethod | None:
        """What is to draft for the request's next step; None where nothing pays."""
        t = self.requests.get(request_id)
        return None if t is None else t.drafts.method(t.computed, self._draft_methods)

    # --------------------------------------------------------------------- layers

    def write(self, layer: int, key: F32, slots: I64) -> None:
        """The host tier has the step's keys [n, tokens, H, D] of the n layers from ``layer`` on at
        host slots ``slots``, and their values: take note, and bring them to where their pages are
        resident. More than one layer at a time, after the last of them, only in a step without
        sparse and selecting requests."""
        self.kernels.summarize(layer, key, slots)
        if len(self._mirrored):
            for i in range(layer, layer + len(key)):
                self.kernels.mirror(i, self._mirrored)

    def attend(self, layer: int) -> tuple[I32, I32]:
        """Block tables [n * H, width] and lengths [n * H] of the sparse requests, over slots; valid
        until the next layer's.

        Waits for the layer's own pages, but not longer than ``prefetch.wait_ms``; what has not
        come by then is left out and counted late.
        """
        step = self._current()
        assert step.attend_rows is not None
        stats = self.statistics
        stats.wait_seconds += self._prefetcher.wait(layer, self._prefetch_config.wait_ms / 1e3)
        table, lengths, late = self.kernels.rows(layer, step.attend_rows, step.width)
        stats.late += late
        return table, lengths

    def select(self, layer: int, query: F32, softmax_scale: float) -> None:
        """Choose the next step's blocks from the query [n, H, G, D] of the selecting requests."""
        step = self._current()
        assert step.select_rows is not None
        if step.compare is not None:
            self._compare(layer, step, step.select_rows, step.compare, query, softmax_scale)
        found = self.kernels.select(
            layer,
            step.select_rows,
            self._queries.blend(layer, step.select_rows.lanes, step.fresh, query),
            softmax_scale,
            step.budget,
            step.flags,
            step.cap,
            step.index + 1,
        )
        stats = self.statistics
        stats.selected += found.selected
        stats.resident += found.resident
        stats.starved += found.starved
        stats.capped += found.capped
        if len(found.loads):
            self._planned.loads.append((layer, found.loads))
        if not len(found.wants):
            return
        for position in np.unique(found.wants[:, 0]):
            request_id = step.batch[step.selecting[position]].request_id
            mine = found.wants[found.wants[:, 0] == position]
            pages = np.empty((len(mine), 3), np.int32)
            pages[:, 0], pages[:, 1:] = layer, mine[:, 1:]
            self._planned.wants.setdefault(request_id, []).append(pages)

    def _compare(
        self, layer: int, step: Step, rows: Rows, flags: U8, query: F32, softmax_scale: float
    ) -> None:
        """Count how much of the last sets these queries select, and change nothing."""
        t, cap = self.tables, 0
        selected, count = t.selected[rows.lanes, layer], t.count[rows.lanes, layer]
        found = self.kernels.select(
            layer, rows, query, softmax_scale, step.budget, flags, cap, step.index + 1
        )
        t.selected[rows.lanes, layer], t.count[rows.lanes, layer] = selected, count
        self.statistics.compared += found.compared
        self.statistics.agreed += found.agreed

    def want(self, request_id: str, pages: I32) -> None:
        """Ask for pages int32 [n, 3] of (layer, head, logical block) besides those selected."""
        if len(pages):
            self._planned.wants.setdefault(request_id, []).append(pages)

    def end_step(self) -> Mapping[str, I32]:
        """Start the copies for the next step; returns the pages int32 [n, 3] of (layer, head,
        logical block) that each request wants and the host tier lacks."""
        step = self._current()
        self._step = None
        planned, g = self._planned, self.tables.geometry
        for position, i in enumerate(step.selecting):
            t = self.requests[step.batch[i].request_id]
            assert step.select_rows is not None
            t.window = int(step.select_rows.window[position])
            t.selection_length, t.chosen_at = step.batch[i].length, step.index
            t.computed = step.batch[i].computed + 1
            t.parked = None
        admission, prefetch = planned.moves()
        # The first sparse step of a request is worth waiting for: nothing of it is resident.
        self._copy_now(admission)
        if len(prefetch):
            self._prefetcher.submit(prefetch)
            moved = len(prefetch) * g.page_bytes
            self.statistics.moved_bytes["host", "fast", "prefetch"] += moved
        if step.sparse:
            seconds = time.perf_counter() - self._started
            old = self._step_seconds
            self._step_seconds = seconds if old == 0 else 0.9 * old + 0.1 * seconds
        return {name: np.concatenate(parts) for name, parts in planned.wants.items()}

    def _current(self) -> Step:
        if self._step is None:
            raise RuntimeError("begin_step() comes before the layers of a step")
        return self._step

    # ---------------------------------------------------------------- remote pages

    def prepare(self, blocks: I32) -> None:
        """These host blocks are about to receive a peer's pages; what they held is gone."""
        self._drop(blocks)

    def land(self, request_id: str, pages: I32, data: U8, reason: str) -> None:
        """Put a peer's pages int32 [n, 3] of (layer, head, host block) of a request into the host
        tier; those that its next step attends to go on to the fast tier with it."""
        self.kernels.write_pages(pages, data)
        self.requests.landed(request_id)
        self.statistics.moved_bytes["remote", "host", reason] += data.size

    def check(self) -> None:
        """Between two steps: raise AssertionError when tables, lanes and requests do not agree."""
        self._prefetcher.drain()
        self.tables.check()
        if bool((self.tables.state == SlotState.ARRIVING).any()):
            raise AssertionError("a slot waits for a page that no copy brings")
        self.requests.check()

    def close(self) -> None:
        self._prefetcher.close()
