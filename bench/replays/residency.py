"""Misses of a bounded fast tier, with and without looking ahead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.plain.recording import F32, Recording
from bench.replays.bed import BUDGET, Bed, Make, build, pool, recall, summarize
from oasis_runtime.core.smoothing import WEIGHT
from oasis_runtime.kernels.contract import U8, Rows, SelectFlag
from oasis_runtime.kernels.cpu import CpuKernels

DRAFT_HIT_RATE = 0.7
_FREELY = 1 << 30
_LANE, _PROBE = 0, 1
Set = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Residency:
    """Pages that the tokens of an answer needed and that were not in the fast tier; ``moved``:
    pages that were loaded after the first set; ``recall``: [A, L, H], of what they attended to."""

    needed: int
    missed: int
    moved: int
    recall: F32


def predictions(r: Recording) -> Mapping[str, F32]:
    """The query [A, L, H, G, D] that stands for the one of the token after, by method."""
    right = np.random.default_rng(0).random(len(r.query)) < DRAFT_HIT_RATE
    following = np.concatenate((r.query[1:], r.query[-1:]))

    def where(condition: Set, yes: F32, no: F32) -> F32:
        return np.where(condition[:, None, None, None, None], yes, no)

    return {
        "previous": r.query,
        "ema": smoothed(r.query),
        "ngram": where(r.hit >= 0, r.ngram, r.query),
        "draft": where(right, following, r.wrong),
        "wrong_draft": r.wrong,
    }


def smoothed(queries: F32) -> F32:
    """Exponential means of queries [A, L, H, G, D] over the tokens before, as the engine has."""
    means = queries.copy()
    for t in range(1, len(means)):
        means[t] = means[t - 1] + WEIGHT * (queries[t] - means[t - 1])
    return means


class _Pool:
    """A fast tier whose copies are complete as soon as they are asked for."""

    def __init__(self, r: Recording, budgets: float, make: Make) -> None:
        self._bed: Bed = build(r, pool(budgets) * r.keys.shape[2], make)
        self._recording = r
        self.tables = self._bed.tables
        self._loaded = 0
        summarize(self._bed, r, 0, r.prompt)

    def append(self, t: int) -> None:
        """Token ``t`` of the answer has its key."""
        at = self._recording.prompt + t
        summarize(self._bed, self._recording, at, at + 1)

    def select(self, query: F32, lane: int, flags: int, length: int, step: int) -> Set:
        """The set [L, H, blocks] of the token after ``length`` tokens; what it lacks is loaded
        unless CHOOSE_ONLY. ``query``: [L, H, G, D]."""
        t, g = self.tables, self.tables.geometry
        rows = Rows(
            lanes=np.array([lane], np.int32),
            tables=np.arange(g.blocks_for(length), dtype=np.int32)[None],
            sinks=np.array([BUDGET.sinks], np.int32),
            window=np.array([BUDGET.window_start(length)], np.int32),
            lengths=np.array([length], np.int32),
        )
        budget, flag = np.array([BUDGET.selected], np.int32), np.array([flags], np.uint8)
        found = np.zeros((g.layers, g.heads, g.host_blocks), bool)
        for layer in range(g.layers):
            mine = np.ascontiguousarray(query[layer][None])
            chosen = self._bed.kernels.select(
                layer, rows, mine, g.dim**-0.5, budget, flag, _FREELY, step
            )
            moves = np.empty((len(chosen.loads), 4), np.int32)
            moves[:, 0], moves[:, 1:] = layer, chosen.loads[:, :3]
            self._bed.kernels.copy(moves, np.zeros(1, np.int64))
            self._loaded += len(moves)
            for head in range(g.heads):
                count = t.count[lane, layer, head]
                found[layer, head, t.selected[lane, layer, head, :count]] = True
        return found

    @property
    def loaded(self) -> int:
        """Pages that selections have loaded so far."""
        return self._loaded

    def own(self, query: F32, flags: int, length: int, step: int) -> Set:
        """What the token's own query selects, next to the set that was predicted for it."""
        self.tables.selected[_PROBE] = self.tables.selected[_LANE]
        self.tables.count[_PROBE] = self.tables.count[_LANE]
        return self.select(query, _PROBE, flags | SelectFlag.CHOOSE_ONLY, length, step)


def lru(r: Recording, mass: F32, budgets: float) -> Residency:
    """Every token loads what its own query selects, when it selects it."""
    fast = _Pool(r, budgets, CpuKernels)
    needed = missed = first = 0
    recalls = []
    for t in range(len(r.query)):
        length = r.prompt + t
        before = fast.tables.slot_of.copy()
        own = fast.select(r.query[t], _LANE, 0, length, t + 1)
        if t:  # the first loads everything, as an admission does
            needed += int(own.sum())
            missed += int((own & (before < 0)).sum())
        else:
            first = fast.loaded
        recalls.append(recall(mass[t], own, length + 1))
        fast.append(t)
    return Residency(needed, missed, fast.loaded - first, np.stack(recalls))


def lookahead(
    r: Recording,
    mass: F32,
    predicted: F32,
    budgets: float,
    make: Make = CpuKernels,
    boost: U8 | None = None,
    weight: float = WEIGHT,
) -> Residency:
    """Every token attends to what ``predicted`` selected for it one step before. ``boost``: [L, H],
    times the budget that a head may select; ``weight``: of the newest query in the mean that
    selects. What a token needs is what its own query selects in the place of the predicted one."""
    fast = _Pool(r, budgets, make)
    if boost is not None:
        fast.tables.boost[:] = boost
    needed = missed = 0
    recalls = []
    attended = fast.select(r.query[0], _LANE, SelectFlag.ADMISSION, r.prompt, 1)
    first, mean, before = fast.loaded, r.query[0], r.query[0]
    for t in range(len(r.query)):
        length = r.prompt + t
        if t:
            query = before + np.float32(weight) * (r.query[t] - before)
            own = fast.own(query, SelectFlag.KEEP, length, t + 1)
            needed += int(own.sum())
            missed += int((own & (fast.tables.slot_of < 0)).sum())
        recalls.append(recall(mass[t], attended, length + 1))
        fast.append(t)
        before, mean = mean, mean + np.float32(weight) * (predicted[t] - mean)
        attended = fast.select(mean, _LANE, SelectFlag.KEEP, length + 1, t + 2)
    return Residency(needed, missed, fast.loaded - first, np.stack(recalls))


def agreement(r: Recording, predicted: F32) -> float:
    """Part of the tokens' own sets that the predictions have, both without KEEP."""
    fast = _Pool(r, 1, CpuKernels)
    agreed = needed = 0
    for t in range(1, len(r.query)):
        length = r.prompt + t
        fast.append(t - 1)
        ours, own = (
            fast.select(query, _PROBE, SelectFlag.CHOOSE_ONLY, length, 1)
            for query in (predicted[t - 1], r.query[t])
        )
        agreed += int((ours & own).sum())
        needed += int(own.sum())
    return agreed / needed
