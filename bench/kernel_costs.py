"""CPU time of the kernels of a decode step, over all layers and heads of one request.

    python bench/kernel_costs.py [--steps 60]

The shape is that of SmolLM2-135M: 30 layers, 3 KV heads of 3 query heads each, head size 64, and a
budget of 2,048 tokens. Summaries and queries are random; queries drift from step to step, so that
sets change. What a selection lacks is copied between the steps, outside the time. A time is the
median over the steps of the calling thread's CPU time; the kernels use no other thread.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import result
from oasis_runtime.core.bfloat16 import round_up
from oasis_runtime.core.geometry import Geometry
from oasis_runtime.core.tables import Tables
from oasis_runtime.kernels.contract import Rows, SelectFlag
from oasis_runtime.kernels.cpu import CpuKernels

LAYERS, HEADS, GROUP, DIM = 30, 3, 3, 64
BUDGET, LOCAL = 2048, 64
CONTEXTS = {"7k": 7168, "16k": 16384, "32k": 32768}
BLOCKS = (16, 32)
FLAGS = SelectFlag.COMPARE | SelectFlag.KEEP


@dataclass(frozen=True)
class Bed:
    """One request that owns all blocks; ``host`` is the memory that the tables point to."""

    tables: Tables
    host: npt.NDArray[np.uint8]
    rows: Rows

    @staticmethod
    def of(context: int, block: int, rng: np.random.Generator) -> Bed:
        blocks, local = context // block, LOCAL // block
        g = Geometry(
            layers=LAYERS,
            heads=HEADS,
            group=GROUP,
            dim=DIM,
            block=block,
            element_bytes=2,
            host_blocks=blocks,
            slots=HEADS * (BUDGET // block + 2 * local + 16),
        )
        host = np.zeros((blocks, HEADS, g.page_bytes), np.uint8)  # the same for all layers
        tables = Tables.create(
            g,
            np.full(LAYERS, host.ctypes.data, np.uint64),
            np.zeros((LAYERS, g.slots, g.page_bytes), np.uint8),
            lanes=1,
            max_selected=BUDGET // block,
        )
        bounds = np.sort(rng.integers(-127, 128, (2, *tables.low.shape)), axis=0)
        tables.low[:], tables.high[:] = bounds.astype(np.int8)
        tables.scale[:] = round_up(np.full(tables.scale.shape, 0.02, np.float32))
        tables.present[:] = 1
        rows = Rows(
            lanes=np.zeros(1, np.int32),
            tables=rng.permutation(blocks).astype(np.int32)[None],
            sinks=np.full(1, local, np.int32),
            window=np.full(1, blocks - local, np.int32),
            lengths=np.full(1, context, np.int32),
        )
        return Bed(tables, host, rows)


@dataclass
class Times:
    """Seconds of the step under way and of those before, by kernel."""

    steps: list[dict[str, float]] = field(default_factory=list)

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        start = time.thread_time()
        yield
        step = self.steps[-1]
        step[name] = step.get(name, 0.0) + time.thread_time() - start

    def median_ms(self, name: str) -> float:
        return 1e3 * float(np.median([step[name] for step in self.steps[3:]]))


def measure(context: int, block: int, steps: int) -> dict[str, float]:
    """Median milliseconds a step of each kernel, over all layers."""
    rng = np.random.default_rng(0)
    bed = Bed.of(context, block, rng)
    kernels, rows, times = CpuKernels(bed.tables), bed.rows, Times()
    query = rng.standard_normal((LAYERS, 1, HEADS, GROUP, DIM), np.float32)
    key = rng.standard_normal((1, 1, HEADS, DIM), np.float32)
    token = np.array([int(rows.tables[0, -1]) * block + block - 1])
    local = np.r_[rows.tables[0, : rows.sinks[0]], rows.tables[0, rows.window[0] :]]
    budget, flags = np.full(1, BUDGET // block, np.int32), np.array([FLAGS], np.uint8)
    progress = np.zeros(1, np.int64)
    for step in range(1, steps + 4):
        query += 0.3 * rng.standard_normal(query.shape, np.float32)
        query /= np.float32(np.sqrt(1.09))
        times.steps.append({})
        kernels.pin(np.sort(local), step)
        for layer in range(LAYERS):
            with times.of("summarize"):
                kernels.summarize(layer, key, token)
            with times.of("rows"):
                kernels.rows(layer, rows, BUDGET // block + 2 * LOCAL // block)
            with times.of("select"):
                found = kernels.select(
                    layer, rows, query[layer], DIM**-0.5, budget, flags, 1000, step + 1
                )
            moves = np.column_stack([np.full(len(found.loads), layer), found.loads[:, :3]])
            kernels.copy(np.ascontiguousarray(moves, np.int32), progress)
    return {name: times.median_ms(name) for name in ("summarize", "rows", "select")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()
    metrics = {
        f"{kernel}_ms_{name}_b{block}": milliseconds
        for block in BLOCKS
        for name, context in CONTEXTS.items()
        for kernel, milliseconds in measure(context, block, arguments.steps).items()
    }
    print(f"wrote {result.write('kernel_costs', metrics)}")


if __name__ == "__main__":
    main()
