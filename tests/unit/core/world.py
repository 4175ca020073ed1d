"""A serving framework in miniature around the engine: it gives out blocks, writes keys and values
where a model would, attends, and checks on the way whatever must always hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from oasis_runtime.contract import PrefetchConfig, RequestOptions, SelectionConfig
from oasis_runtime.core.budget import Budget
from oasis_runtime.core.drafting import DraftMethod
from oasis_runtime.core.engine import SparseEngine, Step
from oasis_runtime.core.escalation import FACTOR
from oasis_runtime.core.geometry import Geometry
from oasis_runtime.core.requests import Selection, StepRequest
from oasis_runtime.core.tables import SlotState, Tables
from oasis_runtime.kernels.contract import I32
from tests.unit.core.gate import GatedKernels, GatedPrefetcher

F32 = npt.NDArray[np.float32]

BLOCK = 16
SMALL = SelectionConfig(
    mode="sparse", budget_tokens=64, sink_tokens=16, window_tokens=16, escalate=False
)
"""4 selected blocks, 1 sink, a window of at most 3 blocks."""
SHARP = 4.0
"""Scale of the softmax: sets change much from step to step, though old blocks are preferred."""
LATE = PrefetchConfig(wait_ms=0, cap=1.0)
"""Nothing waits: what the gate has not let through is late."""

Attended = dict[tuple[str, int, int], tuple[int, ...]]
"""Logical blocks by request, layer and head."""


class OutOfBlocksError(Exception):
    """The host tier has no free block."""


@dataclass
class Request:
    name: str
    prompt: int
    seed: int
    blocks: list[int] = field(default_factory=list)
    computed: int = 0
    lost: int = 0
    """Tokens that had been computed when the request was preempted."""

    @property
    def remaining(self) -> int:
        """Tokens of the prompt, or of what was lost, that are not computed yet."""
        return max(0, self.prompt - self.computed, self.lost - self.computed)


@dataclass(frozen=True)
class Outcome:
    step: Step
    served: Mapping[str, str]
    attended: Attended
    wants: Mapping[str, I32]


def small_geometry(slots: int, host_blocks: int = 64, layers: int = 2, heads: int = 2) -> Geometry:
    return Geometry(
        layers=layers,
        heads=heads,
        group=2,
        dim=8,
        block=BLOCK,
        element_bytes=4,
        host_blocks=host_blocks,
        slots=slots,
    )


class World:
    def __init__(
        self,
        slots: int,
        *,
        host_blocks: int = 64,
        selection: SelectionConfig = SMALL,
        prefetch: PrefetchConfig = LATE,
        lanes: int = 8,
        decodes: bool = True,
        draft_methods: Sequence[DraftMethod] = (),
    ) -> None:
        g = self.geometry = small_geometry(slots, host_blocks)
        rng = np.random.default_rng(0)
        self.host = rng.standard_normal(
            (g.layers, g.host_blocks, g.heads, 2, g.block, g.dim), np.float32
        )
        self.fast = rng.standard_normal((g.layers, g.slots, 2, g.block, g.dim), np.float32)
        addresses = np.array([layer.ctypes.data for layer in self.host], np.uint64)
        pages = self.fast.view(np.uint8).reshape(g.layers, g.slots, g.page_bytes)
        longest = Budget.of(selection, RequestOptions(), g.block).selected_at(host_blocks * g.block)
        most = longest * (FACTOR if selection.escalate else 1)
        self.tables = Tables.create(g, addresses, pages, lanes, most)
        self.kernels = GatedKernels(self.tables)
        self.gate = self.kernels.gate
        with patch("oasis_runtime.core.engine.Prefetcher", GatedPrefetcher):
            self.engine = SparseEngine(
                self.tables, self.kernels, selection, prefetch, decodes, draft_methods
            )
        self.escalates = selection.escalate
        self.requests: dict[str, Request] = {}
        self.free = list(range(g.host_blocks))
        self.users = np.zeros(g.host_blocks, np.int64)
        self.filled = np.zeros(g.host_blocks, np.int64)
        """Tokens of each host block that have been written."""
        self.late = 0
        self._noise = np.random.default_rng(1).standard_normal(
            (1009, g.layers, g.heads, g.dim), np.float32
        )
        self._stamp = 0.0
        self._chosen: dict[str, Selection] = {}

    # ------------------------------------------------------------------ requests

    def admit(self, name: str, prompt: int, shares: Request | None = None) -> Request:
        """A new request; it has the full blocks of ``shares``'s prompt in common."""
        r = self.requests[name] = Request(name, prompt, seed=len(name) + ord(name[-1]) * 31)
        if shares is not None:
            common = min(shares.prompt, shares.computed, prompt - 1) // BLOCK
            r.blocks = shares.blocks[:common]
            r.computed = common * BLOCK
            self.users[r.blocks] += 1
        return r

    def release(self, r: Request) -> None:
        """The request ended: the engine forgets it and its blocks go to whoever asks next."""
        self.engine.requests.forget(r.name)
        self._chosen.pop(r.name, None)
        self._give_back(r)
        del self.requests[r.name]

    def preempt(self, r: Request) -> None:
        """All blocks are lost, everything is computed again."""
        self.engine.requests.forget(r.name)
        self._chosen.pop(r.name, None)
        self._give_back(r)
        r.lost = max(r.lost, r.computed)
        r.computed = 0

    def _give_back(self, r: Request) -> None:
        self.users[r.blocks] -= 1
        self.free += [b for b in r.blocks if self.users[b] == 0]
        r.blocks = []

    def grow(self, r: Request, tokens: int) -> None:
        """Raises OutOfBlocksError when the host tier is full."""
        need = self.geometry.blocks_for(tokens) - len(r.blocks)
        if need > len(self.free):
            raise OutOfBlocksError(r.name)
        for _ in range(need):
            r.blocks.append(self.free.pop())
            self.users[r.blocks[-1]] += 1

    # ---------------------------------------------------------------------- step

    def prefill(self, r: Request, chunk: int = 1 << 30) -> Outcome:
        """Compute the whole prompt; returns the last step."""
        while True:
            outcome = self.step({r.name: min(chunk, r.remaining)})
            if not r.remaining:
                return outcome

    def decode(self, *requests: Request) -> Outcome:
        return self.step({r.name: 1 for r in requests})

    def step(
        self,
        scheduled: Mapping[str, int],
        rejected: Mapping[str, int] | None = None,
        between: Callable[[], None] = lambda: None,
    ) -> Outcome:
        """One step. ``rejected``: of the scheduled tokens, those that turn out not to count;
        ``between`` runs before each layer."""
        batch = []
        for name, count in scheduled.items():
            r = self.requests[name]
            self.grow(r, r.computed + count)
            # As in vLLM, the table has room for more blocks, with what was there before.
            others = [b for other in self.requests.values() for b in other.blocks[-2:]]
            blocks = np.array([*r.blocks, *others], np.int32)
            batch.append(StepRequest(name, blocks, r.computed, count, r.prompt))
        step = self.engine.begin_step(batch)
        self._check_step(step)
        attended: Attended = {}
        for layer in range(self.geometry.layers):
            between()
            self._write(layer, step)
            if step.sparse:
                attended |= self._attend(layer, step)
            if step.selecting:
                query = np.stack([self._query(batch[i], layer) for i in step.selecting])
                self.engine.select(layer, query, SHARP)
        wants = self.engine.end_step()
        for name, count in scheduled.items():
            r = self.requests[name]
            r.computed += count - (rejected or {}).get(name, 0)
            chosen = self.engine.requests.selection_of(name)
            self._chosen.pop(name, None)
            if chosen is not None:
                self._chosen[name] = chosen
        self.check()
        served = {batch[i].request_id: "sparse" for i in step.sparse}
        served |= {batch[i].request_id: "dense" for i in step.dense}
        return Outcome(step, served, attended, wants)

    def adopt(self, r: Request, selection: Selection, remote: bool) -> None:
        """As a decode engine does when a prefill engine has sent its admission."""
        self.engine.requests.adopt(r.name, selection, remote)
        self._chosen[r.name] = selection

    def _check_step(self, step: Step) -> None:
        assert sorted((*step.sparse, *step.dense)) == list(range(len(step.batch)))
        assert set(step.sparse) <= set(step.selecting), "a sparse request chooses no next set"
        for i in step.sparse:
            assert self._chosen[step.batch[i].request_id], "a sparse request has no set"

    def _tokens(self, r: StepRequest) -> npt.NDArray[np.int64]:
        position = np.arange(r.computed, r.length)
        slots: npt.NDArray[np.int64] = r.blocks[position // BLOCK] * np.int64(BLOCK)
        return slots + position % BLOCK

    def _write(self, layer: int, step: Step) -> None:
        """Keys and values of the step's tokens to the host tier; the engine does the rest."""
        parts = []
        for r in step.batch:
            slots = self._tokens(r)
            parts.append(slots)
            self.filled[slots // BLOCK] = slots % BLOCK + 1  # of equal ones the last counts
        slots = np.concatenate(parts)
        key = np.concatenate([self._keys(r, layer) for r in step.batch])
        stamps = np.arange(len(slots), dtype=np.float32) + np.float32(self._stamp)
        self._stamp = (self._stamp + len(slots)) % 2**23
        value = np.broadcast_to(stamps[:, None, None], key.shape)
        block, position = slots // BLOCK, slots % BLOCK
        self.host[layer, block, :, 0, position] = key
        self.host[layer, block, :, 1, position] = value
        self.engine.write(layer, np.ascontiguousarray(key)[None], slots)

    def _keys(self, r: StepRequest, layer: int) -> F32:
        seed = self.requests[r.request_id].seed
        key: F32 = self._noise[(seed + np.arange(r.computed, r.length)) % 1009, layer]
        return key

    def _query(self, r: StepRequest, layer: int) -> F32:
        g = self.geometry
        rng = np.random.default_rng((self.requests[r.request_id].seed, layer, r.length))
        return rng.standard_normal((g.heads, g.group, g.dim), np.float32)

    def _attend(self, layer: int, step: Step) -> Attended:
        """What the block tables of the layer mean, after checking them against the host tier."""
        table, lengths = self.engine.attend(layer)
        heads = self.geometry.heads
        counts = -(-lengths // BLOCK)
        tails = np.repeat([(step.batch[i].length - 1) % BLOCK + 1 for i in step.sparse], heads)
        assert (lengths == (counts - 1) * BLOCK + tails).all()
        slots = table[np.arange(table.shape[1]) < counts[:, None]]
        logical = self._read(layer, slots, np.repeat(np.arange(len(counts)), counts), step)
        found: Attended = {}
        for line, blocks in enumerate(np.split(logical, np.cumsum(counts)[:-1])):
            r, head = step.batch[step.sparse[line // heads]], line % heads
            self._check_attended(layer, head, blocks.tolist(), r)
            found[r.request_id, layer, head] = tuple(blocks.tolist())
        return found

    def _read(
        self, layer: int, slots: I32, lines: npt.NDArray[np.int64], step: Step
    ) -> npt.NDArray[np.int64]:
        """Logical blocks of the pages in ``slots``, each of a line of the block table; they must
        hold what the host tier does."""
        g = self.geometry
        owner, block = np.divmod(self.tables.owner[layer, slots], g.host_blocks)
        assert (owner == lines % g.heads).all(), "a head attends to the page of another head"
        assert (self.tables.state[layer, slots] == int(SlotState.RESIDENT)).all()
        numbers = np.full((len(step.sparse), g.host_blocks), -1)
        for row, i in zip(numbers, step.sparse, strict=True):
            used = step.batch[i].blocks[: -(-step.batch[i].length // BLOCK)]
            row[used] = np.arange(len(used))
        logical: npt.NDArray[np.int64] = numbers[lines // g.heads, block]
        assert (logical >= 0).all(), "a request attends to a page of another request"
        ends = np.array([step.batch[i].length for i in step.sparse])[lines // g.heads]
        filled = np.arange(BLOCK) < (ends - BLOCK * logical)[:, None]
        same = (self.fast[layer, slots] == self.host[layer, block, owner]).all(axis=(1, 3))
        assert (same | ~filled).all(), "a page that is attended to is not the host tier's"
        return logical

    def _check_attended(self, layer: int, head: int, blocks: Sequence[int], r: StepRequest) -> None:
        chosen = self._chosen[r.request_id]
        budget = self.engine.requests.budget_of(r.request_id)
        total = -(-r.length // BLOCK)
        sinks = list(range(min(budget.sinks, total)))
        window = list(range(max(chosen.window, len(sinks)), total))
        selection = chosen.blocks[layer, head, : chosen.count[layer, head]].tolist()
        most = budget.selected_at(chosen.length)
        assert len(selection) <= most * (FACTOR if self.escalates else 1)
        middle = list(blocks[len(sinks) : len(blocks) - len(window)])
        assert list(blocks) == [*sinks, *middle, *window]
        assert set(middle) <= set(selection)
        assert all(len(sinks) <= b < chosen.window for b in selection)
        self.late += len(selection) - len(middle)

    # --------------------------------------------------------------------- checks

    def check(self) -> None:
        """What must hold between any two steps, copies under way or not."""
        t = self.tables
        t.check()
        lanes = [r.lane for r in self.engine.requests.values() if r.lane is not None]
        assert len(lanes) == len(set(lanes)), "two requests keep their sets in one lane"
        layer, slot = np.nonzero(t.state == SlotState.RESIDENT)
        head, block = np.divmod(t.owner[layer, slot], self.geometry.host_blocks)
        used = np.arange(BLOCK)[None] < self.filled[block][:, None]
        same = (self.fast[layer, slot] == self.host[layer, block, head]).all(axis=(1, 3))
        stale = np.nonzero((used & ~same).any(axis=1))[0]
        assert not len(stale), f"host block {block[stale[0]]} is stale in layer {layer[stale[0]]}"

    def close(self) -> None:
        """Everything ends; nothing may be left behind."""
        for r in list(self.requests.values()):
            self.release(r)
        self.engine.check()
        self.check()
        assert not self.engine.requests
        assert sorted(self.free) == list(range(self.geometry.host_blocks))
        self.engine.close()
