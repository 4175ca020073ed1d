"""A prefill engine in miniature. A decode engine cannot tell a good selection from another, nor one
set of keys from another, so all of them are random."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from oasis_runtime.core.admission import Admission, hot_pages
from oasis_runtime.core.bfloat16 import round_up
from oasis_runtime.core.requests import Selection
from oasis_runtime.kernels.contract import I32
from tests.unit.core.world import BLOCK, F32, Request, World


@dataclass
class Export:
    """``pages``: [L, H, n, 2, block, D] of the n blocks of a prompt; ``wanted``: what the reader
    has asked for and not got, int32 [*, 3]."""

    request: Request
    pages: F32
    wanted: I32 = field(default_factory=lambda: np.empty((0, 3), np.int32))


class Peer:
    def __init__(self, world: World, rng: np.random.Generator) -> None:
        self._world = world
        self._rng = rng
        self.exports: dict[str, Export] = {}

    def send(self, name: str, prompt: int) -> Request:
        """A new request of which the world gets the summaries and the hot pages.

        Raises OutOfBlocksError with nothing left behind when the host tier is full.
        """
        world, g, rng = self._world, self._world.geometry, self._rng
        r = world.admit(name, prompt)
        try:
            world.grow(r, prompt)
        except Exception:
            world.release(r)
            raise
        r.computed = prompt - 1
        blocks = np.array(r.blocks, np.int32)
        n = len(blocks)
        shape = (g.layers, n, g.heads, g.dim)
        low, high = np.sort(rng.integers(-127, 128, (2, *shape)).astype(np.int8), axis=0)
        scale = round_up(np.float32(0.02) * rng.random(shape[:3], np.float32))
        world.engine.prepare(blocks)
        selection = self._selection(name, prompt)
        Admission(selection, low, high, scale).install(world.tables, blocks)
        world.filled[blocks] = np.minimum(BLOCK, prompt - BLOCK * np.arange(n))
        pages = rng.standard_normal((g.layers, g.heads, n, 2, g.block, g.dim), np.float32)
        self.exports[name] = Export(r, pages)
        sinks = world.engine.requests.budget_of(name).sinks
        self._land(name, hot_pages(selection, sinks, n), "admission")
        world.adopt(r, selection, remote=True)
        return r

    def _selection(self, name: str, prompt: int) -> Selection:
        g, budget = self._world.geometry, self._world.engine.requests.budget_of(name)
        window = min(budget.window_start(prompt), g.blocks_for(prompt))
        choice: npt.NDArray[np.int64] = np.arange(budget.sinks, window)
        count = min(len(choice), budget.selected)
        blocks = [
            np.sort(self._rng.choice(choice, count, replace=False))
            for _ in range(g.layers * g.heads)
        ]
        return Selection(
            np.array(blocks, np.int32).reshape(g.layers, g.heads, count),
            np.full((g.layers, g.heads), count, np.int32),
            window,
            prompt,
        )

    def ask(self, name: str, pages: I32) -> None:
        export = self.exports[name]
        export.wanted = np.unique(np.concatenate((export.wanted, pages)), axis=0)

    def deliver(self, name: str, pages: int) -> None:
        """So many of the wanted pages come."""
        export = self.exports[name]
        order = self._rng.permutation(len(export.wanted))
        came, export.wanted = export.wanted[order[:pages]], export.wanted[order[pages:]]
        self._land(name, came, "demand")

    def _land(self, name: str, pages: I32, reason: str) -> None:
        export, g = self.exports[name], self._world.geometry
        data = np.ascontiguousarray(export.pages[pages[:, 0], pages[:, 1], pages[:, 2]])
        here = pages.copy()
        here[:, 2] = np.array(export.request.blocks, np.int32)[pages[:, 2]]
        flat = data.view(np.uint8).reshape(-1, g.page_bytes)
        self._world.engine.land(name, here, flat, reason)

    def die(self, name: str) -> None:
        """What the world lacks will never come: it computes the request again."""
        r = self.exports.pop(name).request
        self._world.engine.requests.lose(name)
        r.lost, r.computed = max(r.lost, r.computed), 0

    def forget(self, name: str) -> None:
        self.exports.pop(name, None)
