"""Decode attention over per-head page tables, where no framework's own kernel takes them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oasis_runtime.core.geometry import Geometry
from oasis_runtime.core.tables import plain_elements
from oasis_runtime.kernels.triton import TritonKernels
from tests.unit.kernels.states import Case, cases, empty, geometries

TOLERANCE = {4: 2e-5, 2: 4e-3}
"""By bytes of an element: float32, and float16 with its weights rounded before the product."""


def tables(case: Case, rows: int, width: int) -> tuple[npt.NDArray[np.int32], ...]:
    """A table of slots for each request and head, and lengths from one token to all of it."""
    g = case.geometry
    table = case.rng.integers(0, g.slots, (rows * g.heads, width)).astype(np.int32)
    return table, case.rng.integers(1, width * g.block + 1, len(table)).astype(np.int32)


@given(cases(geometries(2, 4)), st.integers(0, 3), st.integers(1, 6))
@settings(max_examples=20, deadline=None, suppress_health_check=(HealthCheck.too_slow,))
def test_attention_is_that_of_the_listed_tokens(case: Case, rows: int, width: int) -> None:
    g = case.geometry
    dtype = np.dtype({2: np.float16, 4: np.float32}[g.element_bytes])
    pages = case.rng.standard_normal((g.layers, g.slots, g.page_bytes // dtype.itemsize))
    for state in (case.expected, case.actual):
        state.tables.elements[:] = plain_elements(g)
        state.tables.fast[:] = pages.astype(dtype).view(np.uint8)
    query = case.rng.standard_normal((rows, g.heads, g.group, g.dim)).astype(dtype)
    table, lengths = tables(case, rows, width)
    layer = case.layer()
    expected = case.reference.attend(layer, query, table, lengths, g.dim**-0.5)
    kernels = TritonKernels(case.actual.tables, torch.device("cpu"))
    actual = kernels.attend(
        layer,
        torch.from_numpy(query),
        torch.from_numpy(table),
        torch.from_numpy(lengths),
        g.dim**-0.5,
    )
    assert actual.shape == query.shape
    np.testing.assert_allclose(actual.float().numpy(), expected, atol=TOLERANCE[g.element_bytes])


def test_pages_of_another_layout_are_refused() -> None:
    g = Geometry(1, 1, 1, 64, 16, 2, host_blocks=1, slots=4)
    shuffled = empty(g, np.zeros((1, 1, 1, g.page_bytes), np.uint8), 1).tables
    shuffled.elements[:] = shuffled.elements[::-1].copy()
    query, table = torch.zeros((1, 1, 1, 64)), torch.zeros((1, 1), dtype=torch.int32)
    with pytest.raises(ValueError, match="then values; see Tables"):
        TritonKernels(shuffled, torch.device("cpu")).attend(0, query, table, table[0], 1.0)
