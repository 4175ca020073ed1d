"""Geometry, statistics, and the check that every other test leans on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oasis_runtime.core.geometry import slots_for
from oasis_runtime.core.statistics import Statistics
from oasis_runtime.core.tables import SlotState, Tables
from tests.unit.core.world import World, small_geometry


def tables() -> Tables:
    """With page (layer 1, head 1, block 3) resident in slot 2."""
    g = small_geometry(slots=4, host_blocks=8)
    fast = np.zeros((g.layers, g.slots, g.page_bytes), np.uint8)
    t = Tables.create(g, np.zeros(g.layers, np.uint64), fast, 2, 3)
    t.owner[1, 2], t.slot_of[1, 1, 3], t.state[1, 2] = 8 + 3, 2, SlotState.RESIDENT
    return t


def test_tables_that_agree_pass_the_check() -> None:
    tables().check()
    assert tables().resident() == 1


@pytest.mark.parametrize(
    ("name", "at", "value", "message"),
    [
        ("state", (1, 2), SlotState.FREE, "is free but has an owner"),
        ("state", (0, 0), SlotState.ARRIVING, "is not free"),
        ("owner", (1, 2), -1, "has none but is not free"),
        ("slot_of", (1, 1, 3), 1, "mapped to another slot"),
        ("slot_of", (1, 1, 3), -1, "mapped to another slot"),
        ("slot_of", (0, 0, 0), 1, "does not own"),
    ],
)
def test_tables_that_disagree_do_not(
    name: str, at: tuple[int, ...], value: int, message: str
) -> None:
    broken = tables()
    getattr(broken, name)[at] = value
    with pytest.raises(AssertionError, match=message):
        broken.check()


def test_a_released_slot_and_its_page_know_nothing_of_each_other() -> None:
    t = tables()
    t.last[1, 2] = 7
    t.release(np.array([1], np.int32), np.array([2], np.int32))
    t.check()
    assert (t.slot_of == -1).all()
    assert (t.state == SlotState.FREE).all()
    assert (t.last == -1).all()


def test_a_lost_lane_is_found() -> None:
    world = World(40)
    r = world.admit("r", 100)
    world.prefill(r)
    world.engine.requests["r"].lane = None
    with pytest.raises(AssertionError, match="lanes are lost or shared"):
        world.engine.check()
    world.engine.close()


def test_a_slot_that_waits_for_a_copy_that_nobody_makes_is_found() -> None:
    world = World(40)
    r = world.admit("r", 100)
    world.prefill(r)
    world.tables.state[world.tables.state == SlotState.RESIDENT] = SlotState.ARRIVING
    with pytest.raises(AssertionError, match="no copy brings"):
        world.engine.check()
    world.engine.close()


def test_tiers_of_another_shape_are_refused() -> None:
    g = small_geometry(slots=4)
    fast = np.zeros((g.layers, g.slots, g.page_bytes), np.uint8)
    with pytest.raises(ValueError, match="one address a layer"):
        Tables.create(g, np.zeros(1, np.uint64), fast, 1, 1)
    with pytest.raises(ValueError, match="contiguous"):
        Tables.create(g, np.zeros(g.layers, np.uint64), fast[:, :2], 1, 1)


def test_sizes() -> None:
    g = small_geometry(slots=4)
    assert g.page_bytes == 2 * 16 * 8 * 4
    assert g.block_bytes == g.page_bytes * 2 * 2
    assert [g.blocks_for(n) for n in (0, 1, 16, 17)] == [0, 1, 1, 2]
    assert slots_for(10 * g.page_bytes + 1, 2, g.page_bytes) == 5


def test_a_geometry_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="dim must be positive, got 0"):
        replace(small_geometry(slots=4), dim=0)
    with pytest.raises(ValueError, match=r"fewer than the 2 KV heads; raise tiers\.fast_bytes"):
        small_geometry(slots=1)


def test_taken_statistics_start_afresh_and_are_not_shared() -> None:
    counts = Statistics()
    counts.selected = 5
    counts.steps["sparse"] += 2
    counts.moved_bytes["host", "fast", "pin"] += 7
    counts.recalls.append(0.5)
    taken = counts.take()
    assert (taken.selected, taken.recalls) == (5, [0.5])
    assert taken.moved_bytes == {("host", "fast", "pin"): 7}
    assert counts == Statistics()
    counts.steps["sparse"] += 1
    counts.recalls.append(0.9)
    assert taken.steps == {"sparse": 2}
    assert taken.recalls == [0.5]
