"""Copies on threads: submitted once, awaited layer by layer, never two batches at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Event

import numpy as np
import pytest

from oasis_runtime.core.prefetch import Prefetcher
from oasis_runtime.core.tables import SlotState, Tables
from oasis_runtime.kernels.contract import I32, I64
from oasis_runtime.kernels.cpu import CpuKernels
from tests.unit.core.gate import GatedKernels
from tests.unit.core.world import small_geometry

LAYERS, PAGES = 3, 8
DEADLINE = 10.0


def refuse(moves: I32, error: OSError) -> None:
    pytest.fail(f"{len(moves)} copies failed: {error}")


@pytest.fixture
def kernels() -> GatedKernels:
    g = small_geometry(slots=16, host_blocks=16, layers=LAYERS)
    host = np.random.default_rng(0).integers(0, 256, (LAYERS, 16, 2, g.page_bytes), np.uint8)
    fast = np.zeros((LAYERS, 16, g.page_bytes), np.uint8)
    made = GatedKernels(
        Tables.create(g, np.array([x.ctypes.data for x in host], np.uint64), fast, 1, 1)
    )
    made.host = host  # type: ignore[attr-defined]  # keeps the memory that the tables point to
    return made


@pytest.fixture
def prefetcher(kernels: GatedKernels) -> Iterator[Prefetcher]:
    made = Prefetcher(kernels, LAYERS, kernels.tables.geometry.page_bytes, threads=2, failed=refuse)
    yield made
    kernels.gate.open()
    made.close()


def arriving(tables: Tables) -> I32:
    """Moves of ``PAGES`` pages of head 0 in each layer, ascending in layer; their slots wait."""
    moves = [(layer, 0, n, n) for layer in range(LAYERS) for n in range(PAGES)]
    for layer, head, block, slot in moves:
        tables.owner[layer, slot] = head * tables.geometry.host_blocks + block
        tables.slot_of[layer, head, block] = slot
        tables.state[layer, slot] = SlotState.ARRIVING
    return np.array(moves, np.int32)


def test_a_drained_batch_is_resident(kernels: GatedKernels, prefetcher: Prefetcher) -> None:
    prefetcher.submit(arriving(kernels.tables))
    prefetcher.drain()
    assert kernels.tables.resident() == LAYERS * PAGES
    assert not prefetcher.busy
    assert prefetcher.bytes_per_second > 0


def test_layers_come_in_the_order_in_which_they_are_needed(
    kernels: GatedKernels, prefetcher: Prefetcher
) -> None:
    moves = arriving(kernels.tables)
    kernels.gate.close(len(moves))
    prefetcher.submit(moves)
    assert prefetcher.wait(0, 0.0) == pytest.approx(0.0, abs=DEADLINE)
    kernels.gate.allow(2 * PAGES)
    # Two threads with half of each layer: each is at most one layer ahead of the other.
    resident = (kernels.tables.state == SlotState.RESIDENT).sum(axis=1)
    assert list(resident) == sorted(resident, reverse=True)
    kernels.gate.allow(PAGES)
    assert prefetcher.wait(LAYERS - 1, DEADLINE) < DEADLINE


def test_waiting_for_a_layer_leaves_the_later_ones_under_way(kernels: GatedKernels) -> None:
    prefetcher = Prefetcher(kernels, LAYERS, kernels.tables.geometry.page_bytes, 1, refuse)
    moves = arriving(kernels.tables)
    kernels.gate.close(len(moves))
    prefetcher.submit(moves)
    kernels.gate.allow(PAGES)
    assert prefetcher.wait(0, DEADLINE) == 0.0
    assert (kernels.tables.state[0, :PAGES] == SlotState.RESIDENT).all()
    assert (kernels.tables.state[1:, :PAGES] == SlotState.ARRIVING).all()
    assert prefetcher.busy
    kernels.gate.open()
    prefetcher.close()


def test_a_wait_ends_at_its_deadline(kernels: GatedKernels, prefetcher: Prefetcher) -> None:
    moves = arriving(kernels.tables)
    kernels.gate.close(len(moves))
    prefetcher.submit(moves)
    assert prefetcher.wait(0, 0.01) >= 0.01
    assert (kernels.tables.state[0, :PAGES] == SlotState.ARRIVING).all()


def test_nothing_to_wait_for_takes_no_time(prefetcher: Prefetcher) -> None:
    assert prefetcher.wait(0, DEADLINE) == 0.0
    assert prefetcher.drain() == 0.0
    prefetcher.submit(np.empty((0, 4), np.int32))
    assert prefetcher.drain() == 0.0
    assert prefetcher.bytes_per_second == 0.0


def test_a_second_batch_starts_after_the_first_has_ended(kernels: GatedKernels) -> None:
    order: list[tuple[int, int]] = []

    class Recording(CpuKernels):
        def copy(self, moves: I32, progress: I64) -> None:
            order.extend((int(layer), int(block)) for layer, _, block, _ in moves)
            super().copy(moves, progress)

    prefetcher = Prefetcher(Recording(kernels.tables), LAYERS, 1024, 1, refuse)
    moves = arriving(kernels.tables)
    prefetcher.submit(moves[:5])
    prefetcher.submit(moves[5:])
    prefetcher.close()
    assert order == [(int(layer), int(block)) for layer, _, block, _ in moves]


class Broken(CpuKernels):
    def copy(self, moves: I32, progress: I64) -> None:
        raise RuntimeError(f"the pages of {len(moves)} moves are gone after {progress[0]}")


def test_what_a_copy_raises_surfaces_where_the_batch_is_drained(kernels: GatedKernels) -> None:
    prefetcher = Prefetcher(Broken(kernels.tables), LAYERS, 1024, 2, refuse)
    prefetcher.submit(arriving(kernels.tables))
    assert prefetcher.wait(LAYERS - 1, DEADLINE) < DEADLINE
    with pytest.raises(RuntimeError, match="the pages of 12 moves are gone after 0"):
        prefetcher.drain()
    assert prefetcher.drain() == 0.0, "an error is told once"
    prefetcher.close()


def test_moves_that_cannot_be_made_are_told_where_the_batch_is_drained(
    kernels: GatedKernels,
) -> None:
    told: list[tuple[list[list[int]], str]] = []
    prefetcher = Prefetcher(
        kernels, LAYERS, 1024, 1, lambda moves, error: told.append((moves.tolist(), str(error)))
    )
    moves = arriving(kernels.tables)
    copies = iter(range(len(moves)))
    kernels.gate.fail(lambda: next(copies) == 5)
    prefetcher.submit(moves)
    assert prefetcher.wait(LAYERS - 1, DEADLINE) < DEADLINE
    assert not told
    prefetcher.drain()
    assert told == [(moves[5:].tolist(), "the link is broken")]
    assert kernels.tables.resident() == 5
    assert prefetcher.bytes_per_second == 0.0, "no rate is known of a batch that failed"
    prefetcher.close()


def test_a_batch_is_reaped_once_nothing_of_it_is_under_way(
    kernels: GatedKernels, prefetcher: Prefetcher
) -> None:
    moves = arriving(kernels.tables)
    kernels.gate.close(len(moves))
    prefetcher.submit(moves)
    prefetcher.reap()
    assert prefetcher.busy
    kernels.gate.allow(len(moves))
    deadline = time.monotonic() + DEADLINE
    while prefetcher.busy and time.monotonic() < deadline:
        prefetcher.reap()
    assert not prefetcher.busy
    assert kernels.tables.resident() == len(moves)


def test_closing_after_an_error_still_ends_the_threads(kernels: GatedKernels) -> None:
    ended = Event()

    class Last(Broken):
        def copy(self, moves: I32, progress: I64) -> None:
            ended.set()
            super().copy(moves, progress)

    prefetcher = Prefetcher(Last(kernels.tables), LAYERS, 1024, 1, refuse)
    moves = arriving(kernels.tables)
    prefetcher.submit(moves)
    with pytest.raises(RuntimeError, match="gone"):
        prefetcher.close()
    assert ended.is_set()
    with pytest.raises(RuntimeError, match="shutdown"):
        prefetcher.submit(moves)


def test_the_bandwidth_is_a_moving_mean(kernels: GatedKernels, prefetcher: Prefetcher) -> None:
    rates = []
    for _ in range(3):
        prefetcher.submit(arriving(kernels.tables))
        prefetcher.drain()
        rates.append(prefetcher.bytes_per_second)
    assert all(rate > 0 for rate in rates)
    assert len(set(rates)) > 1
