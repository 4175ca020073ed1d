"""Tables that hold a recording's summaries, and what its tokens really attended to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.plain.recording import F32, Recording
from oasis_runtime.contract import RequestOptions, SelectionConfig
from oasis_runtime.core.budget import Budget
from oasis_runtime.core.escalation import FACTOR
from oasis_runtime.core.geometry import Geometry
from oasis_runtime.core.tables import Tables
from oasis_runtime.kernels.contract import I32, U8, Kernels, Rows, Selected, SelectFlag
from oasis_runtime.kernels.cpu import CpuKernels

BLOCK = 32
SELECTION = SelectionConfig(mode="sparse", budget_tokens=1024)
BUDGET = Budget.of(SELECTION, RequestOptions(), BLOCK)
LANES = 2

Make = Callable[[Tables], Kernels]


class Plain(CpuKernels):
    """Without the preference for the last set."""

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
        flags = flags & np.uint8(~SelectFlag.KEEP & 0xFF)
        return super().select(layer, rows, query, softmax_scale, budget, flags, cap, step)


@dataclass(frozen=True)
class Bed:
    """One request, whose logical blocks are the host blocks of the same number. Pages are empty:
    the summaries decide. ``host`` is the memory that the tables point to."""

    tables: Tables
    kernels: Kernels
    host: npt.NDArray[np.uint8]


def build(r: Recording, slots: int, make: Make = CpuKernels) -> Bed:
    """The host tier has room for the whole recording and holds nothing yet."""
    layers, tokens, heads, dim = r.keys.shape
    g = Geometry(
        layers=layers,
        heads=heads,
        group=r.query.shape[3],
        dim=dim,
        block=BLOCK,
        element_bytes=1,
        host_blocks=-(-tokens // BLOCK) + 1,
        slots=slots,
    )
    host = np.zeros((layers, g.host_blocks, heads, g.page_bytes), np.uint8)
    tables = Tables.create(
        g,
        np.array([layer.ctypes.data for layer in host], np.uint64),
        np.zeros((layers, slots, g.page_bytes), np.uint8),
        LANES,
        FACTOR * BUDGET.selected,
    )
    return Bed(tables, make(tables), host)


def summarize(bed: Bed, r: Recording, first: int, last: int) -> None:
    """Tokens ``first`` to ``last`` of the recording have been computed."""
    slots = np.arange(first, last)
    for layer in range(len(r.keys)):
        bed.kernels.summarize(layer, np.ascontiguousarray(r.keys[layer, first:last])[None], slots)


def pool(budgets: float) -> int:
    """Slots a layer and KV head for so many budgets of pages, besides sinks and window."""
    return int(budgets * BUDGET.selected) + BUDGET.sinks + BUDGET.window_blocks


def true_masses(r: Recording) -> F32:
    """Dense attention mass of each block, float32 [A, L, H, blocks]: mean over query heads."""
    layers, tokens, heads, dim = r.keys.shape
    answer, group = len(r.query), r.query.shape[3]
    blocks = -(-tokens // BLOCK)
    unseen = np.arange(tokens) > r.prompt + np.arange(answer)[:, None]
    out = np.empty((answer, layers, heads, blocks), np.float32)
    for layer in range(layers):
        for head in range(heads):
            query = r.query[:, layer, head].reshape(-1, dim)
            logits = (query @ r.keys[layer, :, head].T).reshape(answer, group, tokens) * dim**-0.5
            logits[unseen[:, None].repeat(group, 1)] = -np.inf
            weights = np.exp(logits - logits.max(axis=2, keepdims=True))
            mean = (weights / weights.sum(axis=2, keepdims=True)).mean(axis=1)
            padded = np.pad(mean, ((0, 0), (0, blocks * BLOCK - tokens)))
            out[:, layer, head] = padded.reshape(answer, blocks, BLOCK).sum(axis=2)
    return out


def recall(mass: F32, selected: npt.NDArray[np.bool_], length: int) -> F32:
    """Share [L, H] of one token's mass [L, H, blocks] on its sinks, window and ``selected`` blocks;
    the token is the last of ``length``."""
    attended = selected.copy()
    attended[:, :, : BUDGET.sinks] = True
    attended[:, :, BUDGET.window_start(length - 1) :] = True
    share: F32 = (mass * attended[:, :, : mass.shape[2]]).sum(axis=2)
    return share
