"""Time of the engine's own work in a decode step, without any model.

    python bench/selection.py [--context 7168] [--requests 1] [--steps 100]

The shape is that of SmolLM2-135M: 30 layers, 3 KV heads of 3 query heads each, head size 64, blocks
of 32 tokens. Queries drift from step to step, so that sets change. Times are CPU time of the
engine's one thread, so that a busy machine does not distort them. The last column is over a context
with nothing to choose from: what is left of a call is the cost of Python around the kernels.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oasis_runtime.contract import PrefetchConfig, SelectionConfig
from oasis_runtime.core.bfloat16 import round_up
from oasis_runtime.core.engine import SparseEngine
from oasis_runtime.core.geometry import Geometry
from oasis_runtime.core.requests import StepRequest
from oasis_runtime.core.tables import Tables
from oasis_runtime.kernels.contract import F32, I32
from oasis_runtime.kernels.cpu import CpuKernels

LAYERS, HEADS, GROUP, DIM, BLOCK = 30, 3, 3, 64, 32


@dataclass(frozen=True)
class Setting:
    context: int
    requests: int
    steps: int
    budget: int


@dataclass(frozen=True)
class Bed:
    """An engine whose requests have random summaries; ``host`` is the memory that it points to."""

    engine: SparseEngine
    host: npt.NDArray[np.uint8]
    blocks: list[I32]


def build(s: Setting, rng: np.random.Generator) -> Bed:
    per_request = -(-(s.context + s.steps + 2) // BLOCK)
    g = Geometry(
        layers=LAYERS,
        heads=HEADS,
        group=GROUP,
        dim=DIM,
        block=BLOCK,
        element_bytes=2,
        host_blocks=per_request * s.requests,
        slots=HEADS * s.requests * (s.budget // BLOCK + 16),
    )
    host = np.zeros((LAYERS, g.host_blocks, HEADS, g.page_bytes), np.uint8)
    tables = Tables.create(
        g,
        np.array([layer.ctypes.data for layer in host], np.uint64),
        np.zeros((LAYERS, g.slots, g.page_bytes), np.uint8),
        lanes=s.requests,
        max_selected=s.budget // BLOCK,
    )
    bounds = np.sort(rng.integers(-127, 128, (2, *tables.low.shape)), axis=0)
    tables.low[:], tables.high[:] = bounds.astype(np.int8)
    tables.scale[:] = round_up(np.full(tables.scale.shape, 0.02, np.float32))
    tables.present[:] = 1
    engine = SparseEngine(
        tables,
        CpuKernels(tables),
        SelectionConfig(mode="sparse", budget_tokens=s.budget),
        PrefetchConfig(),
    )
    return Bed(engine, host, np.split(np.arange(g.host_blocks, dtype=np.int32), s.requests))


def measure(s: Setting) -> dict[str, float]:
    """Median milliseconds a step of each of the engine's calls, over all layers."""
    rng = np.random.default_rng(0)
    bed = build(s, rng)
    query: F32 = rng.standard_normal((LAYERS, s.requests, HEADS, GROUP, DIM), np.float32)
    key: F32 = rng.standard_normal((1, s.requests, HEADS, DIM), np.float32)
    spent: dict[str, list[float]] = defaultdict(list)
    for n in range(s.steps + 2):
        query += 0.3 * rng.standard_normal(query.shape, np.float32)
        query /= np.sqrt(1.09)
        times = step(bed, s.context + n, query, key)
        for name, seconds in times.items():
            if n >= 2:  # the first chooses, the second is the first that attends
                spent[name].append(seconds * 1e3)
    stats = bed.engine.statistics
    out = {name: float(np.median(values)) for name, values in spent.items()}
    out["resident share"] = stats.resident / stats.selected if stats.selected else 1.0
    bed.engine.close()
    return out


def step(bed: Bed, length: int, query: F32, key: F32) -> dict[str, float]:
    """One decode step at ``length`` tokens; seconds of each call."""
    spent: dict[str, float] = defaultdict(float)
    clock = time.thread_time()

    def lap(name: str) -> None:
        nonlocal clock
        now = time.thread_time()
        spent[name] += now - clock
        clock = now

    batch = [
        StepRequest(str(i), blocks, length - 1, 1, length - 1)
        for i, blocks in enumerate(bed.blocks)
    ]
    block, position = divmod(length - 1, BLOCK)
    slots = np.array([blocks[block] for blocks in bed.blocks], np.int64) * BLOCK + position
    clock = time.thread_time()
    current = bed.engine.begin_step(batch)
    lap("begin_step")
    for layer in range(LAYERS):
        clock = time.thread_time()
        bed.engine.write(layer, key, slots)
        lap("write")
        if current.sparse:
            bed.engine.attend(layer)
            lap("attend")
        bed.engine.select(layer, query[layer], DIM**-0.5)
        lap("select")
    bed.engine.end_step()
    lap("end_step")
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--context", type=int, default=7168)
    parser.add_argument("--requests", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--budget", type=int, default=1024)
    arguments = parser.parse_args()
    full = Setting(arguments.context, arguments.requests, arguments.steps, arguments.budget)
    small = Setting(96, arguments.requests, 30, arguments.budget)
    whole, python = measure(full), measure(small)
    print(f"{full.requests} request(s), context {full.context}, budget {full.budget}")
    print(f"{'':14} {'ms/step':>9} {'us/layer':>9} {'us/layer with nothing to choose':>33}")
    for name, milliseconds in whole.items():
        if name == "resident share" or name in ("begin_step", "end_step"):
            print(f"{name:14} {milliseconds:9.3f}")
        else:
            per_layer = (milliseconds / LAYERS * 1e3, python[name] / LAYERS * 1e3)
            print(f"{name:14} {milliseconds:9.3f} {per_layer[0]:9.1f} {per_layer[1]:33.1f}")


if __name__ == "__main__":
    main()
