"""What a summary promises: an upper bound of every q.k of its block, for few bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import strategies as st

from oasis_runtime.core.bfloat16 import widen
from oasis_runtime.core.geometry import Geometry
from oasis_runtime.core.tables import Tables
from tests.unit.kernels.states import Make, empty, holds_for_each

F32 = npt.NDArray[np.float32]


def geometry(dim: int = 64, block: int = 16, element_bytes: int = 2) -> Geometry:
    return Geometry(1, 2, 1, dim, block, element_bytes, host_blocks=2, slots=4)


def summarised(make: Make, g: Geometry, key: F32, cuts: list[int]) -> Tables:
    """Tables after the keys [tokens, H, D] of block 1 came in parts that end at ``cuts``."""
    host = np.zeros((g.layers, g.host_blocks, g.heads, g.page_bytes), np.uint8)
    tables = empty(g, host, 1).tables
    slots = np.arange(g.block, g.block + len(key))
    for first, end in zip([0, *cuts], [*cuts, len(key)], strict=True):
        part = np.ascontiguousarray(key[None, first:end])
        make(tables).summarize(0, part, np.ascontiguousarray(slots[first:end]))
    return tables


@st.composite
def keys(draw: st.DrawFn) -> tuple[Geometry, F32, list[int]]:
    """Keys of one block at any magnitude, growing or not, and where the parts end."""
    g = geometry(draw(st.sampled_from((64, 80, 128))), draw(st.sampled_from((4, 8, 16, 32))))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    tokens = draw(st.integers(1, g.block))
    key = rng.standard_normal((tokens, g.heads, g.dim), np.float32)
    key *= np.float32(10 ** draw(st.floats(-3, 3)))
    key += rng.standard_normal((1, g.heads, g.dim), np.float32) * draw(st.sampled_from((0, 20)))
    key *= np.linspace(1, draw(st.sampled_from((0.1, 1, 1.5))), tokens)[:, None, None]
    cuts = draw(st.sets(st.integers(1, tokens - 1))) if tokens > 1 else set()
    return g, key.astype(np.float32), sorted(cuts)


@holds_for_each(keys(), st.integers(0, 2**32 - 1), examples=150)
def test_the_bound_is_never_below_a_key_of_the_block(
    make: Make, drawn: tuple[Geometry, F32, list[int]], seed: int
) -> None:
    g, key, cuts = drawn
    t = summarised(make, g, key, cuts)
    query = np.random.default_rng(seed).standard_normal((8, g.heads, g.dim))
    step = widen(t.scale[0, 1])[:, None].astype(np.float64)
    low, high = step * t.low[0, 1], step * t.high[0, 1]
    assert (low <= key).all()
    assert (key <= high).all()
    bound = np.maximum(query * low, query * high).sum(axis=2)
    exact = np.einsum("qhd,thd->tqh", query, key.astype(np.float64))
    rounding = 1e-12 * step[:, 0] * 127 * np.abs(query).sum(axis=2)  # of the sums themselves
    assert (exact <= bound + rounding).all()


@holds_for_each(keys(), examples=150)
def test_a_block_written_in_parts_is_bounded_as_if_at_once(
    make: Make, drawn: tuple[Geometry, F32, list[int]]
) -> None:
    """Up to one quantisation step for each part, since every part may change the scale."""
    g, key, cuts = drawn
    once, parts = summarised(make, g, key, []), summarised(make, g, key, cuts)
    step = widen(once.scale[0, 1])
    np.testing.assert_allclose(widen(parts.scale[0, 1]), step, rtol=0.01 * (len(cuts) + 1))
    for name in ("low", "high"):
        wide = getattr(parts, name)[0, 1] * widen(parts.scale[0, 1])[:, None]
        exact = getattr(once, name)[0, 1] * step[:, None]
        assert (np.abs(wide - exact) <= 1.05 * step[:, None] * (len(cuts) + 1)).all()


@holds_for_each(keys(), examples=50)
def test_writing_the_same_keys_again_changes_nothing(
    make: Make, drawn: tuple[Geometry, F32, list[int]]
) -> None:
    """A multiple of the scale comes back as itself, and so does the scale: nothing creeps."""
    g, key, _ = drawn
    t = summarised(make, g, key, [])
    before = (t.low.copy(), t.high.copy(), t.scale.copy())
    last = np.array([g.block + len(key) - 1])
    if len(key) > 1:
        for _ in range(20):
            make(t).summarize(0, np.ascontiguousarray(key[None, -1:]), last)
    np.testing.assert_array_equal(t.low, before[0])
    np.testing.assert_array_equal(t.high, before[1])
    np.testing.assert_array_equal(t.scale, before[2])


@holds_for_each(st.integers(0, 2**32 - 1), examples=20)
def test_a_new_first_token_forgets_what_the_block_held(make: Make, seed: int) -> None:
    g = geometry()
    rng = np.random.default_rng(seed)
    key = 50 * rng.standard_normal((g.block, g.heads, g.dim), np.float32)
    t = summarised(make, g, key, [])
    fresh = 0.01 * key[:1]
    make(t).summarize(0, fresh[None], np.array([g.block]))
    step = np.abs(fresh).max(axis=(0, 2)) / 127
    assert (widen(t.scale[0, 1]) >= step).all()
    np.testing.assert_allclose(widen(t.scale[0, 1]), step, rtol=2**-7)


@pytest.mark.parametrize(
    ("block", "element_bytes", "share"),
    [(16, 2, 0.03174), (16, 4, 0.01587), (32, 2, 0.01587), (32, 4, 0.00793)],
)
def test_summaries_take_this_share_of_the_kv_at_head_size_64(
    block: int, element_bytes: int, share: float
) -> None:
    """Two bytes a dimension and a scale of two: (2 * D + 2) / (2 * block * D * element)."""
    g = geometry(64, block, element_bytes)
    host = np.zeros((g.layers, g.host_blocks, g.heads, g.page_bytes), np.uint8)
    t = empty(g, host, 1).tables
    stored = t.low.nbytes + t.high.nbytes + t.scale.nbytes
    assert stored == t.summary_bytes * g.host_blocks
    assert stored / host.nbytes == pytest.approx(share, abs=1e-5)
