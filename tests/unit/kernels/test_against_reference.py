"""Every method of every implementation does to all tables what the reference does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

from oasis_runtime.core.geometry import Geometry
from oasis_runtime.core.tables import SlotState
from oasis_runtime.kernels.contract import I32, I64, U8, Rows, Selected, SelectFlag
from tests.unit.kernels.states import STEP, Case, Make, cases, holds_for_each

HALF, NOT_A_NUMBER = 0x3F00, 0x7FC0
"""Scales: bfloat16, see :class:`oasis_runtime.core.tables.Tables`."""


def chunks(case: Case) -> list[I64]:
    """Host slots of the tokens of a few calls: several blocks are filled, each in ragged parts
    that continue in later calls, with padding tokens between."""
    g, rng = case.geometry, case.rng
    filled = dict.fromkeys(range(min(g.host_blocks, 4)), 0)
    calls = []
    for _ in range(int(rng.integers(1, 5))):
        slots: list[int] = []
        for block in rng.permutation(list(filled)):
            count = int(rng.integers(0, g.block - filled[block] + 1))
            slots += range(block * g.block + filled[block], block * g.block + filled[block] + count)
            filled[block] = (filled[block] + count) % g.block
            slots += [-1] * int(rng.integers(0, 3))
        calls.append(np.array(slots, np.int64))
    return calls


@holds_for_each(cases(), examples=60)
def test_summaries_of_ragged_chunks(make: Make, case: Case) -> None:
    g = case.geometry
    for slots in chunks(case):
        layer = case.layer()
        layers = int(case.rng.integers(1, g.layers - layer + 1))
        key = case.rng.standard_normal((layers, len(slots), g.heads, g.dim), np.float32)
        case.reference.summarize(layer, key, slots)
        case.tested(make).summarize(layer, key, slots)
    case.assert_same()


@holds_for_each(cases(), examples=60)
def test_drop_forgets_pages_and_frees_their_slots(make: Make, case: Case) -> None:
    blocks = case.some_blocks()
    case.reference.drop(blocks)
    case.tested(make).drop(blocks)
    case.assert_same()
    case.actual.tables.check()
    assert (case.actual.tables.slot_of[:, :, blocks] == -1).all()


@holds_for_each(cases(), examples=60)
def test_pin_makes_blocks_resident_or_changes_nothing(make: Make, case: Case) -> None:
    blocks = case.some_blocks()
    try:
        copied = case.reference.pin(blocks, STEP)
    except MemoryError:
        with pytest.raises(MemoryError, match="fast_bytes"):
            case.tested(make).pin(blocks, STEP)
    else:
        assert case.tested(make).pin(blocks, STEP) == copied
        assert (case.actual.tables.slot_of[:, :, blocks] >= 0).all()
    case.assert_same()
    case.actual.tables.check()


@holds_for_each(cases(), examples=60)
def test_place_gives_slots_to_adopted_selections(make: Make, case: Case) -> None:
    rows = case.requests(case.geometry.host_blocks)
    case.choose(rows)
    old = case.rng.integers(0, 2, len(rows), np.uint8)
    expected = case.reference.place(rows, old, STEP)
    np.testing.assert_array_equal(case.tested(make).place(rows, old, STEP), expected)
    case.assert_same()
    case.actual.tables.check()


@holds_for_each(cases(), examples=60)
def test_mirror_copies_tokens_and_skips_padding(make: Make, case: Case) -> None:
    g = case.geometry
    slots = case.rng.integers(-1, g.host_blocks * g.block, 40)
    layer = case.layer()
    case.reference.mirror(layer, slots)
    case.tested(make).mirror(layer, slots)
    case.assert_same()


@holds_for_each(cases(), st.booleans(), examples=60)
def test_rows_over_slots(make: Make, case: Case, complete: bool) -> None:
    g = case.geometry
    rows = case.requests(min(g.host_blocks, 6))
    case.choose(rows)
    if complete:
        make_local_resident(make, case, rows)
    layer, width = case.layer(), rows.tables.shape[1]
    try:
        expected = case.reference.rows(layer, rows, width)
    except LookupError:
        with pytest.raises(LookupError, match=f"layer {layer}"):
            case.tested(make).rows(layer, rows, width)
        return
    table, lengths, late = case.tested(make).rows(layer, rows, width)
    np.testing.assert_array_equal(table, expected[0])
    np.testing.assert_array_equal(lengths, expected[1])
    assert late == expected[2]
    case.assert_same()


def make_local_resident(make: Make, case: Case, rows: Rows) -> None:
    """Pin sinks and windows where they fit, so that rows() has what it needs."""
    g = case.geometry
    parts = [
        np.r_[table[: min(sinks, used)], table[max(window, min(sinks, used)) : used]]
        for table, sinks, window, used in zip(
            rows.tables, rows.sinks, rows.window, -(-rows.lengths // g.block), strict=True
        )
    ]
    blocks = np.unique(np.concatenate(parts)).astype(np.int32)
    for state in (case.expected, case.actual):
        state.tables.state[state.tables.state == SlotState.ARRIVING] = SlotState.RESIDENT
    if len(blocks) * g.heads <= g.slots:
        case.reference.pin(blocks, STEP)
        case.tested(make).pin(blocks, STEP)


@st.composite
def selections(draw: st.DrawFn) -> tuple[Case, Rows, I32, U8, int]:
    """Requests with budgets from one block to all of them, any boosts, any flags, any cap."""
    case = draw(cases())
    boost = case.rng.integers(1, 4, (case.geometry.layers, case.geometry.heads))
    for state in (case.expected, case.actual):
        state.tables.boost[:] = boost
    rows = case.requests(case.geometry.host_blocks)
    case.choose(rows)
    budget = case.rng.integers(1, case.geometry.host_blocks + 2, len(rows)).astype(np.int32)
    flags = case.rng.choice([0, 0, 1, 2, 3, 4, 5, 8, 8, 10, 12], len(rows)).astype(np.uint8)
    return case, rows, budget, flags, draw(st.sampled_from((1, 2, 5, 1000)))


@holds_for_each(selections(), examples=150)
def test_select(make: Make, drawn: tuple[Case, Rows, I32, U8, int]) -> None:
    case, rows, budget, flags, cap = drawn
    g, layer = case.geometry, case.layer()
    query = case.rng.standard_normal((len(rows), g.heads, g.group, g.dim), np.float32)
    scale = g.dim**-0.5
    step = STEP + int(case.rng.integers(2))
    expected = case.reference.select(layer, rows, query, scale, budget, flags, cap, step)
    actual = case.tested(make).select(layer, rows, query, scale, budget, flags, cap, step)
    if not same_sets(case, layer, rows, query, scale, flags):
        return  # a tie within rounding: what follows from it differs too
    np.testing.assert_array_equal(actual.loads, expected.loads)
    np.testing.assert_array_equal(actual.wants, expected.wants)
    assert counts(actual) == counts(expected)
    case.assert_same()
    case.actual.tables.check()


def counts(selected: Selected) -> dict[str, int]:
    return {name: n for name, n in vars(selected).items() if name not in ("loads", "wants")}


def same_sets(
    case: Case, layer: int, rows: Rows, query: np.ndarray, scale: float, flags: U8
) -> bool:
    """Whether both chose the same blocks; sets may only differ where the mass hardly does (with
    KEEP: where that much more mass does)."""
    same = True
    for i, lane in enumerate(rows.lanes):
        blocks = rows.tables[i, : case.geometry.blocks_for(int(rows.lengths[i]))]
        for head in range(case.geometry.heads):
            chosen = []
            for state in (case.expected, case.actual):
                count = state.tables.count[lane, layer, head]
                chosen.append(state.tables.selected[lane, layer, head, :count])
            if np.array_equal(chosen[0], chosen[1]):
                continue
            same = False
            if flags[i] & SelectFlag.KEEP:
                continue
            mass = case.reference.masses(layer, head, blocks, query[i, head], scale)
            assert len(chosen[0]) == len(chosen[1])
            gap = mass[chosen[0]].sum() - mass[chosen[1]].sum()
            assert abs(gap) <= 1e-5 * case.geometry.group
    return same


LONG = st.builds(
    Geometry,
    layers=st.just(1),
    heads=st.integers(1, 2),
    group=st.integers(1, 8),
    dim=st.sampled_from((64, 80, 128)),
    block=st.sampled_from((4, 8, 16, 32)),
    element_bytes=st.just(2),
    host_blocks=st.integers(40, 400),
    slots=st.integers(40, 80),
)
"""Contexts of more blocks than any vector is wide."""


@holds_for_each(cases(LONG, selected=st.integers(1, 100)), examples=40)
def test_select_in_a_long_context(make: Make, case: Case) -> None:
    g = case.geometry
    rows = case.requests(g.host_blocks)
    query = case.rng.standard_normal((len(rows), g.heads, g.group, g.dim), np.float32)
    budget = case.rng.integers(0, g.host_blocks + 2, len(rows)).astype(np.int32)
    flags = np.zeros(len(rows), np.uint8)
    expected = case.reference.select(0, rows, query, 0.05, budget, flags, 1000, STEP)
    actual = case.tested(make).select(0, rows, query, 0.05, budget, flags, 1000, STEP)
    assert actual.selected == expected.selected
    if same_sets(case, 0, rows, query, 0.05, flags):
        assert counts(actual) == counts(expected)
        case.assert_same()


@holds_for_each(cases(), st.booleans(), examples=60)
def test_a_window_over_everything_leaves_an_empty_set_and_no_window_a_full_one(
    make: Make, case: Case, full: bool
) -> None:
    g = case.geometry
    rows = case.requests(g.host_blocks)
    rows.sinks[:], rows.window[:] = 0, g.host_blocks if full else 0
    query = case.rng.standard_normal((len(rows), g.heads, g.group, g.dim), np.float32)
    budget = np.full(len(rows), g.host_blocks, np.int32)
    flags = np.full(len(rows), SelectFlag.COMPARE, np.uint8)
    for kernels in (case.reference, case.tested(make)):
        kernels.select(0, rows, query, 0.1, budget, flags, 1000, STEP)
    blocks = np.minimum(-(-rows.lengths // g.block), case.actual.tables.selected.shape[3])
    expected = (blocks if full else 0 * blocks)[:, None]
    assert (case.actual.tables.count[rows.lanes, 0] == expected).all()


@holds_for_each(cases(), examples=10)
def test_nothing_to_do_changes_nothing(make: Make, case: Case) -> None:
    g, kernels = case.geometry, case.tested(make)
    none = np.zeros(0, np.int32)
    rows = Rows(none, np.zeros((0, 1), np.int32), none, none, none)
    kernels.summarize(0, np.zeros((1, 0, g.heads, g.dim), np.float32), np.zeros(0, np.int64))
    kernels.drop(none)
    assert kernels.pin(none, STEP) == 0
    assert len(kernels.place(rows, np.zeros(0, np.uint8), STEP)) == 0
    kernels.mirror(0, np.zeros(0, np.int64))
    table, lengths, late = kernels.rows(0, rows, 4)
    assert (len(table), len(lengths), late) == (0, 0, 0)
    query = np.zeros((0, g.heads, g.group, g.dim), np.float32)
    found = kernels.select(0, rows, query, 1.0, none, np.zeros(0, np.uint8), 5, STEP)
    assert (len(found.loads), len(found.wants), found.selected) == (0, 0, 0)
    kernels.copy(np.zeros((0, 4), np.int32), np.zeros(1, np.int64))
    kernels.read_pages(np.zeros((0, 3), np.int32), np.zeros(0, np.uint8))
    kernels.write_pages(np.zeros((0, 3), np.int32), np.zeros(0, np.uint8))
    case.assert_same()


@holds_for_each(cases(), st.integers(1, 12), examples=60)
def test_blocks_of_the_old_set_are_kept_among_equals_and_do_not_count_as_agreed(
    make: Make, case: Case, budget: int
) -> None:
    g = case.geometry
    rows = Rows(
        lanes=np.zeros(1, np.int32),
        tables=np.arange(g.host_blocks, dtype=np.int32)[None],
        sinks=np.zeros(1, np.int32),
        window=np.full(1, g.host_blocks, np.int32),
        lengths=np.full(1, g.host_blocks * g.block, np.int32),
    )
    count = min(budget, g.host_blocks, case.actual.tables.selected.shape[3])
    last = np.arange(g.host_blocks - count, g.host_blocks)
    for state in (case.expected, case.actual):
        state.tables.low[:], state.tables.high[:], state.tables.scale[:] = -3, 5, HALF
        state.tables.selected[0, 0, :, :count], state.tables.count[0, 0] = last, count
    query = case.rng.standard_normal((1, g.heads, g.group, g.dim), np.float32)
    limit = np.array([budget], np.int32)
    flags = np.full(1, SelectFlag.KEEP | SelectFlag.COMPARE, np.uint8)
    for kernels in (case.reference, case.tested(make)):
        found = kernels.select(0, rows, query, 0.1, limit, flags, 1000, STEP)
        assert found.agreed == g.heads * max(0, 2 * count - g.host_blocks)
    assert (case.actual.tables.selected[0, 0, :, :count] == last).all()
    case.assert_same()


@holds_for_each(cases(), st.integers(1, 12), examples=60)
def test_equal_blocks_are_chosen_lowest_first(make: Make, case: Case, budget: int) -> None:
    g = case.geometry
    rows = Rows(
        lanes=np.zeros(1, np.int32),
        tables=np.arange(g.host_blocks, dtype=np.int32)[None],
        sinks=np.zeros(1, np.int32),
        window=np.full(1, g.host_blocks, np.int32),
        lengths=np.full(1, g.host_blocks * g.block, np.int32),
    )
    for state in (case.expected, case.actual):
        state.tables.low[:], state.tables.high[:], state.tables.scale[:] = -3, 5, HALF
    query = case.rng.standard_normal((1, g.heads, g.group, g.dim), np.float32)
    limit, flags = np.array([budget], np.int32), np.zeros(1, np.uint8)
    for kernels in (case.reference, case.tested(make)):
        kernels.select(0, rows, query, 0.1, limit, flags, 1000, STEP)
    count = min(budget, g.host_blocks, case.actual.tables.selected.shape[3])
    assert (case.actual.tables.selected[0, 0, :, :count] == np.arange(count)).all()
    case.assert_same()


@pytest.mark.filterwarnings("ignore::RuntimeWarning:triton.*")  # of the interpreter's own numpy
@holds_for_each(cases(), examples=60)
def test_keys_that_are_not_numbers_still_give_a_set_of_the_right_size(
    make: Make, case: Case
) -> None:
    g = case.geometry
    rows = case.requests(g.host_blocks)
    case.actual.tables.scale[:, ::2] = NOT_A_NUMBER
    query = case.rng.standard_normal((len(rows), g.heads, g.group, g.dim), np.float32)
    budget = np.full(len(rows), 3, np.int32)
    flags = np.full(len(rows), SelectFlag.CHOOSE_ONLY, np.uint8)
    case.tested(make).select(0, rows, query, 0.1, budget, flags, 1, STEP)
    used = -(-rows.lengths // g.block)
    first = np.minimum(rows.sinks, used)
    between = np.minimum(np.maximum(rows.window, first), used) - first
    most = min(3, case.actual.tables.selected.shape[3])
    chosen = case.actual.tables.count[rows.lanes, 0]
    np.testing.assert_array_equal(
        chosen, np.repeat(np.minimum(between, most), g.heads).reshape(-1, g.heads)
    )


@holds_for_each(cases(), examples=60)
def test_copy_fills_slots_and_counts(make: Make, case: Case) -> None:
    t = case.expected.tables
    layer, slot = np.nonzero(t.state == SlotState.ARRIVING)
    head, block = np.divmod(t.owner[layer, slot], case.geometry.host_blocks)
    moves = np.stack([layer, head, block, slot], axis=1).astype(np.int32)
    for kernels in (case.reference, case.tested(make)):
        progress = np.zeros(1, np.int64)
        kernels.copy(moves, progress)
        assert progress[0] == len(moves)
    case.assert_same()
    assert not (case.actual.tables.state == SlotState.ARRIVING).any()


@holds_for_each(cases(), examples=60)
def test_pages_read_and_written(make: Make, case: Case) -> None:
    pages = case.some_pages()
    size = (len(pages), case.geometry.page_bytes)
    expected, actual = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
    case.reference.read_pages(pages, expected)
    case.tested(make).read_pages(pages, actual)
    np.testing.assert_array_equal(actual, expected)
    data = case.rng.integers(0, 256, size, np.uint8)
    case.reference.write_pages(pages, data)
    case.tested(make).write_pages(pages, data)
    case.assert_same()


@holds_for_each(cases(), examples=5)
def test_a_buffer_of_the_wrong_size_is_refused(make: Make, case: Case) -> None:
    page = np.zeros((1, 3), np.int32)
    for kernels in (case.reference, case.tested(make)):
        with pytest.raises(ValueError, match="1 pages"):
            kernels.read_pages(page, np.zeros(7, np.uint8))
        with pytest.raises(ValueError, match="1 pages"):
            kernels.write_pages(page, np.zeros(7, np.uint8))
