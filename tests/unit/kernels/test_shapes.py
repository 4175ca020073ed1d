"""A request's way from its prompt to attention over the set that it chose, in every shape of heads
and blocks: what random cases of the other tests may miss in one run is here in each."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from oasis_runtime.core.geometry import Geometry
from oasis_runtime.kernels.contract import F32, I32, U8, Kernels, Rows, SelectFlag
from oasis_runtime.kernels.reference import ReferenceKernels
from oasis_runtime.kernels.triton import TritonKernels
from tests.unit.kernels.states import IMPLEMENTATIONS, State, arrays, empty

SHAPES = [
    (i % 3 + 1, i % 8 + 1, dim, block)
    for i, (dim, block) in enumerate(product((64, 80, 128), (4, 8, 16, 32)))
]
"""KV heads, query heads a KV head, head size, block size."""
BUDGET, REQUESTS = 2, 2


def state(g: Geometry, seed: int) -> State:
    host = np.random.default_rng(seed).standard_normal(
        (g.layers, g.host_blocks, g.heads, 2, g.block, g.dim), np.float32
    )
    pages = host.view(np.uint8).reshape(g.layers, g.host_blocks, g.heads, g.page_bytes)
    return empty(g, pages, BUDGET)


def served(kernels: Kernels, g: Geometry, pages: U8) -> tuple[I32, I32, F32]:
    """Block tables, lengths and queries of requests after each has chosen a set."""
    rng = np.random.default_rng(1)
    slots = np.arange(g.host_blocks * g.block)
    key = pages.view(np.float32).reshape(g.host_blocks, g.heads, 2, g.block, g.dim)[:, :, 0]
    by_token = key.transpose(0, 2, 1, 3).reshape(1, len(slots), g.heads, g.dim)
    kernels.summarize(0, np.ascontiguousarray(by_token), slots)
    rows = Rows(
        lanes=np.array([2, 0], np.int32),
        tables=rng.permutation(g.host_blocks).astype(np.int32).reshape(REQUESTS, -1),
        sinks=np.array([1, 0], np.int32),
        window=np.array([4, 3], np.int32),
        lengths=np.array([5 * g.block, 4 * g.block - 1], np.int32),
    )
    query = rng.standard_normal((REQUESTS, g.heads, g.group, g.dim), np.float32)
    budget = np.full(REQUESTS, BUDGET, np.int32)
    flags = np.full(REQUESTS, SelectFlag.ADMISSION, np.uint8)
    found = kernels.select(0, rows, query, g.dim**-0.5, budget, flags, 1, 1)
    assert found.selected == REQUESTS * BUDGET * g.heads
    moves = np.insert(found.loads[:, :3], 0, 0, axis=1).astype(np.int32)
    kernels.copy(moves, np.zeros(1, np.int64))
    table, lengths, late = kernels.rows(0, rows, 5)
    assert late == 0
    return table.copy(), lengths.copy(), query


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
@pytest.mark.parametrize(("heads", "group", "dim", "block"), SHAPES)
def test_a_step_of_every_shape(name: str, heads: int, group: int, dim: int, block: int) -> None:
    g = Geometry(1, heads, group, dim, block, 4, host_blocks=10, slots=9 * heads)
    expected, actual = state(g, group), state(g, group)
    reference = ReferenceKernels(expected.tables)
    tested = IMPLEMENTATIONS[name].make(actual.tables)
    table, lengths, query = served(reference, g, expected.host)
    its_table, its_lengths, _ = served(tested, g, actual.host)
    np.testing.assert_array_equal(its_table, table)
    np.testing.assert_array_equal(its_lengths, lengths)
    for array, values in arrays(expected.tables).items():
        np.testing.assert_array_equal(getattr(actual.tables, array), values, err_msg=array)
    if isinstance(tested, TritonKernels):
        asked, pages, counts = (torch.from_numpy(a) for a in (query, table, lengths))
        found = tested.attend(0, asked, pages, counts, g.dim**-0.5).numpy()
        np.testing.assert_allclose(
            found, reference.attend(0, query, table, lengths, g.dim**-0.5), atol=2e-5
        )
