"""Random states of the tables, in two copies: one for each of the kernels that are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oasis_runtime.core.bfloat16 import round_up
from oasis_runtime.core.geometry import Geometry
from oasis_runtime.core.tables import SlotState, Tables
from oasis_runtime.kernels.contract import I32, Kernels, Rows
from oasis_runtime.kernels.cpu import CpuKernels
from oasis_runtime.kernels.reference import ReferenceKernels
from oasis_runtime.kernels.triton import TritonKernels

Make = Callable[[Tables], Kernels]


@dataclass(frozen=True)
class Implementation:
    """``slowness``: how many examples of the quickest one cost as much as one of this."""

    make: Make
    slowness: int = 1


def interpreted(tables: Tables) -> Kernels:
    """Triton's programs, run by its interpreter on the tables themselves."""
    return TritonKernels(tables, torch.device("cpu"))


IMPLEMENTATIONS: Mapping[str, Implementation] = {
    "cpu": Implementation(CpuKernels),
    "triton": Implementation(interpreted, slowness=15),
}
"""Whatever is listed here has to do what the reference does."""


def holds_for_each(
    *drawn: st.SearchStrategy[Any], examples: int
) -> Callable[[Callable[..., None]], Callable[[str], None]]:
    """Make a test of a property ``(make, *drawn)`` for every implementation."""

    def decorate(body: Callable[..., None]) -> Callable[[str], None]:
        @pytest.mark.parametrize("name", IMPLEMENTATIONS)
        def test(name: str) -> None:
            implementation = IMPLEMENTATIONS[name]

            def check(values: tuple[Any, ...]) -> None:
                body(implementation.make, *values)

            check.__qualname__ = f"{body.__qualname__}[{name}]"  # failures are kept by this name
            limited = settings(
                max_examples=max(3, examples // implementation.slowness),
                deadline=None,
                suppress_health_check=(HealthCheck.too_slow,),  # beside other work
            )
            limited(given(st.tuples(*drawn))(check))()

        test.__name__, test.__doc__ = body.__name__, body.__doc__
        return test

    return decorate


LANES = 4
STEP = 9
"""The step that a case is in; pages were last selected in this one or before."""


@dataclass(frozen=True)
class State:
    """Tables and the host memory that they point to, uint8 [L, V, H, page_bytes]."""

    tables: Tables
    host: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Case:
    """Two equal states and the generator that everything else of the case comes from.

    ``expected`` is for the reference, ``actual`` for the implementation under test.
    """

    geometry: Geometry
    expected: State
    actual: State
    rng: np.random.Generator

    @property
    def reference(self) -> ReferenceKernels:
        return ReferenceKernels(self.expected.tables)

    def tested(self, make: Make) -> Kernels:
        return make(self.actual.tables)

    def assert_same(self) -> None:
        """Every table, both tiers included, is the same for both kernels."""
        for name, array in arrays(self.expected.tables).items():
            np.testing.assert_array_equal(getattr(self.actual.tables, name), array, err_msg=name)
        np.testing.assert_array_equal(self.actual.host, self.expected.host)

    def layer(self) -> int:
        return int(self.rng.integers(self.geometry.layers))

    def some_blocks(self) -> I32:
        count = int(self.rng.integers(self.geometry.host_blocks + 1))
        return self.rng.permutation(self.geometry.host_blocks)[:count].astype(np.int32)

    def some_pages(self) -> I32:
        """Pages int32 [n, 3] of (layer, head, host block), each at most once."""
        g = self.geometry
        every = np.argwhere(np.ones((g.layers, g.heads, g.host_blocks), bool))
        count = int(self.rng.integers(len(every) + 1))
        return self.rng.permutation(every)[:count].astype(np.int32)

    def requests(self, most: int) -> Rows:
        """Up to ``LANES`` requests of at most ``most`` blocks that share their first blocks."""
        g, rng = self.geometry, self.rng
        count = int(rng.integers(1, LANES + 1))
        lengths = rng.integers(1, most * g.block + 1, count).astype(np.int32)
        tables = np.zeros((count, most), np.int32)
        for i in range(count):
            tables[i] = rng.permutation(g.host_blocks)[:most]
            if i and rng.random() < 0.5:
                shared = int(rng.integers(most + 1))
                tail = [b for b in tables[i] if b not in tables[i - 1, :shared]]
                tables[i] = [*tables[i - 1, :shared], *tail][:most]
        return Rows(
            lanes=rng.permutation(LANES)[:count].astype(np.int32),
            tables=tables,
            sinks=rng.integers(0, 4, count).astype(np.int32),
            window=rng.integers(0, most + 1, count).astype(np.int32),
            lengths=lengths,
        )

    def choose(self, rows: Rows) -> None:
        """Give every lane of ``rows`` a selection between its sinks and its window."""
        for i, lane in enumerate(rows.lanes):
            blocks = self.geometry.blocks_for(int(rows.lengths[i]))
            between = np.arange(min(rows.sinks[i], blocks), min(rows.window[i], blocks))
            for layer in range(self.geometry.layers):
                for head in range(self.geometry.heads):
                    most = self.expected.tables.selected.shape[3]
                    count = int(self.rng.integers(min(len(between), most) + 1))
                    chosen = np.sort(self.rng.permutation(between)[:count])
                    for state in (self.expected, self.actual):
                        state.tables.selected[lane, layer, head, :count] = chosen
                        state.tables.count[lane, layer, head] = count


def arrays(tables: Tables) -> dict[str, npt.NDArray[np.generic]]:
    """The tables' own arrays by name (``host`` only holds addresses)."""
    return {
        name: value
        for name, value in vars(tables).items()
        if isinstance(value, np.ndarray) and name != "host"
    }


def empty(geometry: Geometry, host: npt.NDArray[np.uint8], max_selected: int) -> State:
    g = geometry
    addresses = np.array([layer.ctypes.data for layer in host], np.uint64)
    fast = np.zeros((g.layers, g.slots, g.page_bytes), np.uint8)
    return State(Tables.create(g, addresses, fast, LANES, max_selected), host)


def _scatter(state: State, rng: np.random.Generator) -> None:
    """Put random pages into random slots, and random bounds over every block."""
    g, t = state.tables.geometry, state.tables
    t.fast[:] = rng.integers(0, 256, t.fast.shape, np.uint8)
    t.present[:] = rng.random(t.present.shape) < 0.8
    t.elements[:] = rng.permutation(t.elements.size).reshape(t.elements.shape)
    bounds = np.sort(rng.integers(-127, 128, (2, *t.low.shape)), axis=0)
    t.low[:], t.high[:] = bounds.astype(np.int8)
    t.scale[:] = round_up(rng.uniform(0.001, 0.02, t.scale.shape).astype(np.float32))
    fill = rng.random()
    for layer in range(g.layers):
        pages = rng.permutation(g.heads * g.host_blocks)
        used = rng.permutation(g.slots)[: int(fill * min(g.slots, len(pages)))]
        for page, slot in zip(pages, used, strict=False):
            head, block = divmod(int(page), g.host_blocks)
            t.owner[layer, slot], t.slot_of[layer, head, block] = page, slot
            t.last[layer, slot] = rng.integers(1, STEP + 1)
            arriving = rng.random() < 0.1
            t.state[layer, slot] = SlotState.ARRIVING if arriving else SlotState.RESIDENT


def _copy(state: State) -> State:
    twin = empty(state.tables.geometry, state.host.copy(), state.tables.selected.shape[3])
    for name, array in arrays(state.tables).items():
        getattr(twin.tables, name)[:] = array
    return twin


def geometries(*element_bytes: int) -> st.SearchStrategy[Geometry]:
    return st.builds(
        Geometry,
        layers=st.integers(1, 3),
        heads=st.integers(1, 4),
        group=st.integers(1, 8),
        dim=st.sampled_from((64, 80, 128)),
        block=st.sampled_from((4, 8, 16, 32)),
        element_bytes=st.sampled_from(element_bytes),
        host_blocks=st.integers(1, 12),
        slots=st.integers(4, 60),
    )


GEOMETRIES = geometries(1, 2, 4)
FEW = st.integers(1, 12)


@st.composite
def cases(
    draw: st.DrawFn,
    geometries: st.SearchStrategy[Geometry] = GEOMETRIES,
    selected: st.SearchStrategy[int] = FEW,
) -> Case:
    geometry = draw(geometries)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    g = geometry
    host = rng.integers(0, 256, (g.layers, g.host_blocks, g.heads, g.page_bytes), np.uint8)
    state = empty(geometry, host, max_selected=draw(selected))
    _scatter(state, rng)
    state.tables.check()
    return Case(geometry, state, _copy(state), rng)
