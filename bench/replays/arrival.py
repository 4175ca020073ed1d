"""A decode engine that starts with the hot pages of a prompt and gets others as it wants them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from bench.plain.recording import F32, Recording
from bench.replays.bed import (
    BUDGET,
    SELECTION,
    Make,
    build,
    pool,
    recall,
    summarize,
)
from oasis_runtime.contract import PrefetchConfig
from oasis_runtime.core.admission import Admission, hot_pages
from oasis_runtime.core.engine import SparseEngine
from oasis_runtime.core.requests import StepRequest
from oasis_runtime.core.smoothing import WEIGHT
from oasis_runtime.kernels.contract import I32
from oasis_runtime.kernels.cpu import CpuKernels

LATENCY = 2
"""Steps until a wanted page is there."""
_PREFETCH = PrefetchConfig(cap=1.0, wait_ms=60000)


@dataclass(frozen=True)
class Arrival:
    """``hit``: residency hit of the answer's first n steps, by n less one; ``recall``: by step;
    ``demanded``: blocks per layer and head that were fetched after the admission."""

    hit: F32
    recall: F32
    demanded: float


def arrival(
    r: Recording, mass: F32, predicted: F32, make: Make = CpuKernels, weight: float = WEIGHT
) -> Arrival:
    """``weight``: of the newest query in the mean that selects."""
    owner = build(r, pool(1) * r.keys.shape[2])
    summarize(owner, r, 0, r.prompt)
    reader = build(r, pool(4) * r.keys.shape[2], make)
    g = reader.tables.geometry
    blocks = np.arange(g.host_blocks, dtype=np.int32)
    prompt = blocks[: g.blocks_for(r.prompt)]

    choosing = SparseEngine(owner.tables, owner.kernels, SELECTION, _PREFETCH, decodes=False)
    choosing.begin_step([StepRequest("r", blocks, 0, r.prompt, r.prompt)])
    summarize(owner, r, 0, r.prompt)  # begin_step took the blocks for new ones
    for layer in range(g.layers):
        choosing.select(layer, np.ascontiguousarray(r.tail[-1:, layer]), g.dim**-0.5)
    choosing.end_step()
    selection = choosing.requests.selection_of("r")
    assert selection is not None

    engine = SparseEngine(reader.tables, reader.kernels, SELECTION, _PREFETCH, query_weight=weight)
    engine.prepare(prompt)
    Admission.of(owner.tables, prompt, selection).install(reader.tables, prompt)
    _land(engine, hot_pages(selection, BUDGET.sinks, len(prompt)))
    engine.requests.adopt("r", selection, remote=True)

    keys = np.concatenate((r.keys[:, r.prompt - 1 :], r.keys[:, -1:]), axis=1)
    queries = np.concatenate((r.tail[-1:], predicted))
    on_their_way: deque[I32] = deque([np.empty((0, 3), np.int32)] * (LATENCY - 1))
    selected = resident = demanded = 0
    hits, recalls = [], []
    for t in range(len(r.query)):  # the first step computes the prompt's last token again
        length = r.prompt + t
        step = engine.begin_step([StepRequest("r", blocks, length - 1, 1, r.prompt)])
        assert step.sparse == (0,)
        attended = np.zeros((g.layers, g.heads, g.host_blocks), bool)
        for layer in range(g.layers):
            key = np.ascontiguousarray(keys[layer, t : t + 1])[None]
            engine.write(layer, key, np.array([length - 1]))
            table, lengths = engine.attend(layer)
            for head in range(g.heads):
                used = table[head, : g.blocks_for(int(lengths[head]))]
                attended[layer, head, reader.tables.owner[layer, used] % g.host_blocks] = True
            engine.select(layer, np.ascontiguousarray(queries[t : t + 1, layer]), g.dim**-0.5)
        wants = engine.end_step().get("r", np.empty((0, 3), np.int32))
        on_their_way.append(wants)
        came = on_their_way.popleft()
        demanded += int((reader.tables.present[came[:, 0], came[:, 1], came[:, 2]] == 0).sum())
        _land(engine, came)
        stats = engine.statistics.take()
        selected += stats.selected
        resident += stats.resident
        hits.append(resident / selected)
        if t:
            recalls.append(float(recall(mass[t - 1], attended, length).mean()))
    choosing.close()
    engine.close()
    return Arrival(
        np.array(hits, np.float32),
        np.array(recalls, np.float32),
        demanded / (g.layers * g.heads),
    )


def _land(engine: SparseEngine, pages: I32) -> None:
    data = np.zeros((len(pages), engine.tables.geometry.page_bytes), np.uint8)
    engine.land("r", np.ascontiguousarray(pages), data, "demand")
