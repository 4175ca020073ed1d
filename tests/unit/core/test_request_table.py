"""What the engine knows of a request comes with it and goes with it; lanes are never lost."""

from __future__ import annotations

import numpy as np
import pytest

from oasis_runtime.contract import RequestOptions
from oasis_runtime.core.request_table import RequestTable
from oasis_runtime.core.requests import Selection, StepRequest
from oasis_runtime.core.tables import Tables
from tests.unit.core.world import SMALL, small_geometry


def make(lanes: int = 2) -> RequestTable:
    g = small_geometry(slots=40)
    fast = np.zeros((g.layers, g.slots, g.page_bytes), np.uint8)
    tables = Tables.create(g, np.zeros(g.layers, np.uint64), fast, lanes, max_selected=4)
    return RequestTable(tables, SMALL)


def a_set(length: int = 100) -> Selection:
    blocks = np.tile(np.array([1, 3, 4], np.int32), (2, 2, 1))
    return Selection(blocks, np.full((2, 2), 3, np.int32), window=5, length=length)


def request(name: str, computed: int) -> StepRequest:
    return StepRequest(name, np.arange(8, dtype=np.int32), computed, 1, prompt=100)


def test_options_outlive_a_preemption_and_end_with_the_request() -> None:
    table = make()
    table.configure("r", RequestOptions(mode="dense"))
    table.track("r")
    table.release("r")
    assert "r" not in table
    assert table.track("r").budget.mode == "dense"
    table.forget("r")
    assert table.track("r").budget.mode == "sparse"


def test_a_lane_goes_to_one_request_and_comes_back_once() -> None:
    table = make(lanes=1)
    first, second = table.track("a"), table.track("b")
    assert table.give_lane(first)
    assert table.give_lane(first)
    assert not table.give_lane(second)
    table.release("a")
    table.release("a")
    assert table.give_lane(second)
    table.check()


def test_a_peers_set_comes_back_as_it_was_once_it_is_in_a_lane() -> None:
    table = make()
    table.adopt("r", a_set(), remote=True)
    assert table.selection_of("r") is None
    assert table.unpark(table["r"], length=101)
    assert table["r"].parked is None
    found = table.selection_of("r")
    assert found is not None
    np.testing.assert_array_equal(found.blocks[:, :, :3], a_set().blocks)
    assert (found.window, found.length) == (5, 100)


def test_a_peers_set_of_a_longer_context_is_thrown_away() -> None:
    table = make()
    table.adopt("r", a_set(length=100), remote=True)
    assert not table.unpark(table["r"], length=99)
    assert not table.unpark(table["r"], length=101)


def test_a_request_that_starts_again_has_neither_set_nor_peer() -> None:
    table = make()
    table.adopt("r", a_set(), remote=True)
    table.begin_step(request("r", computed=100))
    assert table.unpark(table["r"], length=101)
    t = table.begin_step(request("r", computed=0))
    assert not table.is_remote("r")
    assert t.selection_length == 0


def test_a_set_without_a_lane_is_found() -> None:
    table = make()
    table.track("r").selection_length = 5
    with pytest.raises(AssertionError, match="request r has a set but no lane"):
        table.check()
