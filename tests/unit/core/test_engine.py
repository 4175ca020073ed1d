"""What a step of the engine does for a request, one behaviour each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from oasis_runtime.contract import PrefetchConfig, RequestOptions, SelectionConfig
from oasis_runtime.core.admission import hot_pages
from oasis_runtime.core.engine import COMPARED_STEPS, REST_STEPS
from oasis_runtime.core.hold import FIRST_TOKENS, SAMPLES
from oasis_runtime.core.requests import Selection
from oasis_runtime.core.tables import SlotState
from tests.unit.core.world import BLOCK, SMALL, Attended, Request, World

AMPLE = 400
"""Slots a layer that hold all pages of all requests of a test."""
AUTO = SMALL.model_copy(update={"mode": "auto"})
WIDE = SMALL.model_copy(update={"budget_tokens": 512})
"""A budget of 32 blocks: more than the contexts of these tests have."""


@pytest.fixture
def world() -> Iterator[World]:
    made = World(AMPLE)
    yield made
    made.close()


def every_block(attended: Attended, r: Request) -> bool:
    whole = tuple(range(-(-r.computed // BLOCK)))
    return bool(attended) and all(blocks == whole for blocks in attended.values())


# ------------------------------------------------------------------ dense or sparse


def test_a_short_context_is_dense_and_its_reason_is_counted_once() -> None:
    world = World(AMPLE, selection=AUTO)
    r = world.admit("r", 100)
    world.prefill(r)
    for _ in range(3):
        assert world.decode(r).served == {"r": "dense"}
    counts = world.engine.statistics
    assert counts.fallbacks == {"short_context": 1}
    assert counts.steps == {"dense": 3, "sparse": 0}
    world.close()


def test_prefill_steps_are_no_fallback(world: World) -> None:
    world.prefill(world.admit("r", 300), chunk=100)
    assert world.engine.statistics.fallbacks == {}
    assert world.engine.statistics.steps["dense"] == 0


def test_a_context_that_grows_over_the_bound_is_sparse_from_the_next_step() -> None:
    world = World(AMPLE, selection=AUTO)
    bound = world.engine.requests.budget_of("r").dense_up_to
    r = world.admit("r", bound - 2)
    world.prefill(r)
    served = [world.decode(r).served["r"] for _ in range(4)]
    assert served == ["dense", "dense", "sparse", "sparse"]
    world.close()


def test_a_prompt_over_the_bound_is_sparse_from_its_first_decode_step(world: World) -> None:
    r = world.admit("r", 300)
    assert world.prefill(r, chunk=128).served == {"r": "dense"}
    assert world.decode(r).served == {"r": "sparse"}
    assert world.engine.statistics.steps["sparse"] == 1


def test_a_request_may_ask_to_be_dense(world: World) -> None:
    world.engine.requests.configure("r", RequestOptions(mode="dense"))
    r = world.admit("r", 300)
    world.prefill(r)
    assert world.decode(r).served == {"r": "dense"}
    assert world.engine.statistics.fallbacks == {"mode": 1}


def test_a_request_may_ask_for_another_budget_up_to_what_a_lane_holds(world: World) -> None:
    world.engine.requests.configure("r", RequestOptions(budget_tokens=1024))
    r = world.admit("r", 300)
    world.prefill(r)
    world.decode(r)
    selection = world.engine.requests.selection_of("r")
    assert selection is not None
    assert (selection.count == SMALL.budget_tokens // BLOCK).all()


def test_a_request_selects_more_as_its_context_grows() -> None:
    """4 blocks up to 256 tokens, twice as many at four times as many tokens."""
    growing = SMALL.model_copy(update={"budget_grows_from": 256})
    world = World(100, selection=growing, host_blocks=70)
    found = []
    for prompt in (200, 576, 1024):
        r = world.admit("r", prompt)
        world.prefill(r)
        selection = world.engine.requests.selection_of("r")
        assert selection is not None
        found.append(int(selection.count.max()))
        world.decode(r)
        world.release(r)
    assert found == [4, 6, 8]
    world.close()


def test_an_engine_that_only_prefills_chooses_sets_but_keeps_nothing_resident() -> None:
    world = World(AMPLE, decodes=False)
    r = world.admit("r", 300)
    world.prefill(r, chunk=128)
    selection = world.engine.requests.selection_of("r")
    assert selection is not None
    assert (selection.count == 4).all()
    assert world.tables.resident() == 0
    world.close()


# ------------------------------------------------------------------ the attended set


def test_the_set_is_sinks_then_selection_then_window(world: World) -> None:
    r = world.admit("r", 300)
    world.prefill(r)
    chosen = world.engine.requests.selection_of("r")
    assert chosen is not None
    for (_, layer, head), blocks in world.decode(r).attended.items():
        window = range(chosen.window, 301 // BLOCK + 1)
        assert blocks == (0, *chosen.blocks[layer, head], *window)


def test_the_window_reaches_back_over_its_tokens_whatever_the_alignment(world: World) -> None:
    r = world.admit("r", 300)
    world.prefill(r)
    for _ in range(2 * BLOCK):
        attended = world.decode(r).attended
        oldest = (r.computed - SMALL.window_tokens) // BLOCK
        newest = (r.computed - 1) // BLOCK
        assert all({*range(oldest, newest + 1)} <= {*blocks} for blocks in attended.values())


def test_a_budget_over_the_context_attends_to_every_block() -> None:
    world = World(AMPLE, selection=WIDE)
    r = world.admit("r", 37)
    world.prefill(r)
    for tokens in (1, 2, 1, 2, 2, 1) * 16:
        world.engine.check()  # every copy is complete
        attended = world.step({"r": tokens}).attended
        assert every_block(attended, r)
    assert world.late == 0
    world.close()


def test_a_budget_over_the_context_attends_to_every_block_after_rejected_drafts() -> None:
    world = World(AMPLE, selection=WIDE)
    r = world.admit("r", 15)
    world.prefill(r)
    for i in range(80):
        world.engine.check()
        length = r.computed + 2
        attended = world.step({"r": 2}, rejected={"r": i % 2}).attended
        assert set(attended.values()) == {tuple(range(-(-length // BLOCK)))}
    world.close()


def test_a_request_that_fits_whole_is_sparse_though_its_budget_would_not() -> None:
    """Room is counted in blocks that the request has, not in those that it might select."""
    world = World(2 * 8, selection=WIDE)
    r = world.admit("r", 50)
    world.prefill(r)
    assert world.decode(r).served == {"r": "sparse"}
    world.close()


def test_a_bounded_fast_tier_attends_to_what_an_unbounded_one_does() -> None:
    """Sets come from summaries, so what is resident must not change them, only what is copied."""
    attended: list[list[Attended]] = []
    moved = []
    for slots in (AMPLE, 2 * 8 * 2):
        world = World(slots)
        first, second = world.admit("a", 390), world.admit("b", 260)
        world.prefill(first)
        world.prefill(second)
        steps = []
        for _ in range(40):
            world.engine.check()  # nothing is late
            steps.append(world.decode(first, second).attended)
        attended.append(steps)
        moved.append(sum(world.engine.statistics.moved_bytes.values()))
        assert world.late == 0
        assert world.engine.statistics.starved == 0
        world.close()
    assert attended[0] == attended[1]
    assert moved[1] > moved[0]


def test_a_late_page_is_left_out_and_counted(world: World) -> None:
    r = world.admit("r", 400)
    world.prefill(r)
    for _ in range(10):
        world.decode(r)
    assert world.late > 0
    assert world.engine.statistics.late == world.late


def test_a_page_that_arrives_between_two_layers_is_used_by_the_second() -> None:
    world = World(AMPLE, prefetch=PrefetchConfig(wait_ms=0, cap=1.0))
    r = world.admit("r", 400)
    world.prefill(r)
    missing = []
    for _ in range(10):
        layers = iter(range(world.geometry.layers))

        def let_through(layers: Iterator[int] = layers) -> None:
            if next(layers) == 1:
                world.gate.allow(1 << 20)

        before = world.late
        attended = world.step({"r": 1}, between=let_through).attended
        missing.append(world.late - before)
        assert all(len(b) == max(map(len, attended.values())) for k, b in attended.items() if k[1])
    assert any(missing)
    world.close()


# ------------------------------------------------------------------ copies that fail


def broken(world: World) -> None:
    """From here on no page can be copied."""
    world.gate.fail(lambda: True)


def mended(world: World) -> None:
    world.gate.fail(lambda: False)


def decoding(world: World, name: str, seed: int = 0) -> Request:
    """A sparse request with its pages in the fast tier."""
    r = world.admit(name, 400 + seed)
    world.prefill(r)
    world.decode(r)
    world.engine.check()
    return r


def test_a_request_whose_first_pages_cannot_be_copied_is_dense_and_says_so(world: World) -> None:
    r = world.admit("r", 400)
    broken(world)
    world.prefill(r)
    assert [world.decode(r).served["r"] for _ in range(3)] == ["dense"] * 3
    assert world.engine.statistics.fallbacks == {"copy_failed": 1}
    blocks = 4 + 1 + 1  # selected, sink, window
    assert world.engine.statistics.failed == world.geometry.layers * world.geometry.heads * blocks


def test_pages_that_cannot_be_copied_leave_no_slot_taken(world: World) -> None:
    broken(world)
    world.prefill(world.admit("r", 400))
    world.engine.check()
    assert (world.tables.state == SlotState.FREE).all()


def test_a_set_whose_copies_failed_is_loaded_again_after_a_rest(world: World) -> None:
    r = world.admit("r", 400)
    broken(world)
    world.prefill(r)
    mended(world)
    served = [world.decode(r).served["r"] for _ in range(REST_STEPS + 2)]
    assert served == ["dense"] * (REST_STEPS + 1) + ["sparse"]
    assert world.late == 0


def test_a_link_that_stays_broken_keeps_the_request_dense(world: World) -> None:
    r = world.admit("r", 400)
    broken(world)
    world.prefill(r)
    assert {world.decode(r).served["r"] for _ in range(3 * REST_STEPS)} == {"dense"}


def test_a_request_none_of_whose_pages_fail_stays_sparse(world: World) -> None:
    unharmed = decoding(world, "a")
    broken(world)
    world.prefill(world.admit("b", 300))
    mended(world)
    assert world.decode(unharmed, world.requests["b"]).served == {"a": "sparse", "b": "dense"}


def test_a_page_of_the_next_set_that_cannot_be_copied_makes_the_request_dense() -> None:
    world = World(AMPLE, prefetch=PrefetchConfig(wait_ms=1000, cap=1.0))
    r = decoding(world, "r")
    broken(world)
    while not world.engine.statistics.failed:
        assert world.decode(r).served == {"r": "sparse"}
        world.gate.allow(1 << 20)
        world.engine.check()
    assert world.decode(r).served == {"r": "dense"}
    world.close()


def test_a_request_shorter_than_its_sinks_touches_no_block_of_others() -> None:
    """Table entries behind a request's last block are left from requests before it."""
    world = World(AMPLE, selection=SMALL.model_copy(update={"sink_tokens": 64}))
    short, other = world.admit("a", 5), world.admit("b", 100)
    world.prefill(short)
    world.step({"b": 40})
    world.decode(short)
    assert (world.tables.slot_of[:, :, other.blocks] == -1).all()
    world.close()


# ------------------------------------------------------------------ rewritten and lost blocks


def test_a_rewritten_block_loses_its_pages_in_all_layers(world: World) -> None:
    r = world.admit("r", 300)
    world.prefill(r)
    world.decode(r)
    block = r.blocks[-1]
    assert (world.tables.slot_of[:, :, block] >= 0).all()
    world.release(r)
    assert (world.tables.slot_of[:, :, block] >= 0).all(), "kept until something is written"
    other = world.admit("s", 5)
    world.step({"s": 5})
    assert other.blocks == [block]
    resident = world.tables.slot_of[:, :, block]
    # The other request chose its own set, which has the block again, with its own content.
    assert (world.tables.state[np.arange(2)[:, None], resident] == SlotState.RESIDENT).all()
    dense = world.admit("t", 40)
    world.engine.requests.configure("t", RequestOptions(mode="dense"))
    world.release(other)
    world.step({"t": 40})
    assert block in dense.blocks
    assert (world.tables.slot_of[:, :, block] == -1).all()


def test_a_block_whose_pages_are_still_arriving_is_not_dropped_under_the_copy() -> None:
    world = World(AMPLE)
    r = world.admit("r", 400)
    world.prefill(r)
    while not (world.tables.state == SlotState.ARRIVING).any():
        world.decode(r)
    layer, slot = np.argwhere(world.tables.state == SlotState.ARRIVING)[0]
    block = int(world.tables.owner[layer, slot] % world.geometry.host_blocks)
    world.release(r)
    world.free.remove(block)
    world.free.append(block)
    other = world.admit("s", 10)
    world.step({"s": 10})  # the gate's copy fails if its slot is not its own any more
    assert other.blocks == [block]
    world.close()


def test_a_request_that_was_dense_for_a_while_finds_no_stale_page() -> None:
    world = World(AMPLE)
    r = world.admit("r", 400)
    world.prefill(r)
    world.decode(r)
    for _ in range(SAMPLES):
        world.engine.audited("r", 0, 0, recall=0.0, error=1.0)
    served = [world.decode(r).served["r"] for _ in range(FIRST_TOKENS + 2)]  # checks what it reads
    assert served[0] == "dense"
    assert served[-1] == "sparse"
    world.close()


def test_prepare_waits_for_pages_that_are_still_arriving() -> None:
    world = World(AMPLE)
    r = world.admit("r", 400)
    world.prefill(r)
    while not (world.tables.state == SlotState.ARRIVING).any():
        world.decode(r)
    world.engine.prepare(np.array(r.blocks, np.int32))
    assert (world.tables.slot_of[:, :, r.blocks] == -1).all()
    assert (world.tables.state == SlotState.FREE).all()
    assert not world.tables.present[:, :, r.blocks].any()
    world.close()


def test_a_request_that_starts_again_is_dense_until_it_has_chosen_again(world: World) -> None:
    """The framework says nothing, but the tokens went back: the set names blocks that are not."""
    r = world.admit("r", 40)
    world.prefill(r)
    for _ in range(100):
        assert world.decode(r).served == {"r": "sparse"}
    r.computed = 48
    assert world.step({"r": 10}).served == {"r": "dense"}
    assert world.step({"r": 10}).served == {"r": "sparse"}


def test_what_a_preempted_request_lost_is_computed_again_densely(world: World) -> None:
    """Its prompt is shorter than what it computes again, which must not look like decoding."""
    r = world.admit("r", 40)
    world.prefill(r)
    for _ in range(200):
        world.decode(r)
    world.preempt(r)
    assert [world.step({"r": 100}).served["r"] for _ in range(2)] == ["dense", "dense"]
    assert world.engine.statistics.fallbacks == {}
    assert world.decode(r).served == {"r": "sparse"}


def test_a_rejected_draft_keeps_the_selection(world: World) -> None:
    r = world.admit("r", 300)
    world.prefill(r)
    for i in range(40):
        assert world.step({"r": 2}, rejected={"r": i % 2}).served == {"r": "sparse"}
    assert world.engine.statistics.fallbacks == {}


def test_forget_gives_the_lane_to_the_next_request() -> None:
    world = World(AMPLE, lanes=1)
    first = world.admit("a", 300)
    world.prefill(first)
    assert world.decode(first).served == {"a": "sparse"}
    second = world.admit("b", 300)
    world.prefill(second)
    assert world.decode(second).served == {"b": "dense"}, "there is only one lane"
    world.release(first)
    world.decode(second)
    assert world.decode(second).served == {"b": "sparse"}
    world.close()


def test_a_new_request_of_the_same_name_has_nothing_of_the_old_one(world: World) -> None:
    old = world.admit("r", 300)
    world.prefill(old)
    world.decode(old)
    world.release(old)
    new = world.admit("r", 250)
    assert world.prefill(new).served == {"r": "dense"}
    assert world.decode(new).served == {"r": "sparse"}


# ------------------------------------------------------------------ a full fast tier


def full() -> World:
    """Room for one request at the small budget: 8 blocks for 2 heads, and a few slots more."""
    return World(2 * 8 + 5)


def test_a_request_without_room_is_dense_and_says_so() -> None:
    world = full()
    first, second = world.admit("a", 300), world.admit("b", 300)
    world.prefill(first)
    world.prefill(second)
    for _ in range(5):
        assert world.decode(first, second).served == {"a": "sparse", "b": "dense"}
    assert world.engine.statistics.fallbacks == {"fast_tier_full": 1}
    world.close()


def test_a_request_without_room_harms_nobody_else() -> None:
    alone, crowded = full(), full()
    expected: list[Attended] = []
    actual: list[Attended] = []
    for world, steps in ((alone, expected), (crowded, actual)):
        first = world.admit("a", 300)
        others = [world.admit(name, 300) for name in ("b", "c")] if world is crowded else []
        for r in (first, *others):
            world.prefill(r)
        for _ in range(30):
            world.engine.check()
            attended = world.decode(first, *others).attended
            steps.append({k: v for k, v in attended.items() if k[0] == "a"})
    assert actual == expected
    assert crowded.engine.statistics.starved == 0
    assert crowded.late == 0
    alone.close()
    crowded.close()


def test_two_requests_that_start_together_where_one_fits_both_get_served() -> None:
    world = full()
    first, second = world.admit("a", 300), world.admit("b", 300)
    world.step({"a": 300, "b": 300})
    for _ in range(40):
        assert sorted(world.decode(first, second).served.values()) == ["dense", "sparse"]
    world.close()


def test_a_request_is_sparse_once_the_one_before_it_has_ended() -> None:
    world = full()
    first, second = world.admit("a", 300), world.admit("b", 300)
    world.prefill(first)
    world.prefill(second)
    world.decode(first, second)
    world.release(first)
    served = [world.decode(second).served["b"] for _ in range(REST_STEPS + 2)]
    assert served[-1] == "sparse"
    assert served == sorted(served), "dense, and from then on sparse"
    world.close()


def test_requests_that_take_turns_in_a_tier_for_one_do_not_break_each_other() -> None:
    """The one that pauses leaves pages that were selected for a step that it was not part of."""
    world = full()
    first, second = world.admit("a", 300), world.admit("b", 300)
    world.prefill(first)
    world.prefill(second)
    for i in range(30):
        assert world.decode((first, second)[i % 2]).served
    world.close()


# ------------------------------------------------------------------ residency


def test_a_cap_limits_the_pages_that_a_layer_loads_in_a_step() -> None:
    cap = 0.25
    world = World(AMPLE, prefetch=PrefetchConfig(wait_ms=0, cap=cap))
    r = world.admit("r", 600)
    world.prefill(r)
    page, most = world.geometry.page_bytes, cap * 4 * world.geometry.heads
    moved = []
    for _ in range(20):
        before = world.engine.statistics.moved_bytes["host", "fast", "prefetch"]
        world.decode(r)
        moved.append(world.engine.statistics.moved_bytes["host", "fast", "prefetch"] - before)
    assert 0 < max(moved) <= most * world.geometry.layers * page
    assert world.engine.statistics.capped > 0
    assert world.engine.cap == cap
    world.close()


def test_the_first_set_of_a_request_is_loaded_whole_whatever_the_cap() -> None:
    world = World(AMPLE, prefetch=PrefetchConfig(wait_ms=0, cap=0.01))
    r = world.admit("r", 600)
    world.prefill(r)
    assert world.engine.statistics.capped == 0
    world.decode(r)
    assert world.late == 0
    assert world.engine.statistics.moved_bytes["host", "fast", "admission"] > 0
    world.close()


def test_the_least_recently_selected_pages_go_first() -> None:
    """Once there are no free slots, the pages that are evicted were selected longest ago."""
    world = World(2 * 8 + 8)
    r = world.admit("r", 600)
    world.prefill(r)
    evictions = 0
    for _ in range(30):
        world.engine.check()
        before, last = world.tables.owner.copy(), world.tables.last.copy()
        world.decode(r)
        world.engine.check()
        now = world.tables.owner
        for layer in range(world.geometry.layers):
            gone = (before[layer] >= 0) & (now[layer] != before[layer])
            kept = (before[layer] >= 0) & (world.tables.last[layer] == last[layer])
            if gone.any() and kept.any():
                evictions += int(gone.sum())
                assert last[layer][gone].max() <= last[layer][kept].min()
    assert evictions
    world.close()


def test_a_page_of_the_next_set_is_never_evicted() -> None:
    world = World(2 * 8 + 2)
    r = world.admit("r", 600)
    world.prefill(r)
    for _ in range(40):
        world.decode(r)
        world.engine.check()
        chosen = world.engine.requests.selection_of("r")
        assert chosen is not None
        blocks = np.array(r.blocks)
        for layer in range(world.geometry.layers):
            for head in range(world.geometry.heads):
                used = chosen.blocks[layer, head, : chosen.count[layer, head]]
                assert (world.tables.slot_of[layer, head, blocks[used]] >= 0).all()
    assert world.engine.statistics.starved == 0
    world.close()


def test_a_shared_block_is_resident_once_for_both_requests() -> None:
    world = World(AMPLE, selection=WIDE)
    first = world.admit("a", 200)
    world.prefill(first)
    second = world.admit("b", 210, shares=first)
    assert second.computed == 12 * BLOCK
    world.prefill(second)
    for _ in range(20):
        world.decode(first, second)
    pages = {*first.blocks, *second.blocks}
    assert world.tables.resident() == len(pages) * 2 * 2
    world.close()


def test_a_window_that_moves_back_after_rejected_drafts_is_complete() -> None:
    """Its first block may have been evicted and be on its way back when it is needed."""
    world = World(2 * 8)
    r = world.admit("r", 600)
    world.prefill(r)
    for n in range(100):
        count = 1 + n * 7 % 5
        outcome = world.step({"r": count}, rejected={"r": count - 1})
        assert outcome.served == {"r": "sparse"}
    world.close()


def test_requests_that_paused_find_their_whole_sets_again() -> None:
    """Though others took the slots meanwhile, and copies to these are still under way."""
    wide = SMALL.model_copy(update={"budget_tokens": 256})
    world = World(2 * 20, host_blocks=200, selection=wide)
    small = [world.admit("b", 300), world.admit("c", 300)]
    for r in small:
        world.engine.requests.configure(r.name, RequestOptions(budget_tokens=64))
        world.prefill(r)
    world.decode(*small)
    world.engine.check()  # their copies are complete
    big = world.admit("a", 2000)
    world.prefill(big)
    world.decode(big)
    assert (world.tables.state[0] == SlotState.ARRIVING).sum() > 8
    assert world.decode(*small).served == {"b": "sparse", "c": "sparse"}
    assert world.late == world.engine.statistics.late == 0
    world.close()


def test_slots_of_pages_on_their_way_are_waited_for_when_no_others_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(AMPLE)
    r = world.admit("r", 400)
    world.prefill(r)
    while not (world.tables.state == SlotState.ARRIVING).any():
        world.decode(r)
    pin, tries = world.kernels.pin, []

    def no_slots_while_pages_arrive(blocks: np.ndarray, step: int) -> int:
        tries.append(bool((world.tables.state == SlotState.ARRIVING).any()))
        if tries[-1]:
            raise MemoryError
        return pin(blocks, step)

    monkeypatch.setattr(world.kernels, "pin", no_slots_while_pages_arrive)
    assert world.decode(r).served == {"r": "sparse"}
    assert tries == [True, False]
    world.close()


# ------------------------------------------------------------------ prediction


def test_agreement_is_sampled_and_only_of_queries_of_the_token_itself(world: World) -> None:
    r = world.admit("r", 400)
    world.prefill(r)
    for _ in range(COMPARED_STEPS):
        world.step({"r": 2})
    assert world.engine.statistics.compared == 0
    for _ in range(COMPARED_STEPS):
        world.decode(r)
    pages = 4 * world.geometry.layers * world.geometry.heads
    assert world.engine.statistics.compared == pages
    assert 0 < world.engine.statistics.agreed <= pages


def test_a_comparison_changes_no_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def attended() -> list[Attended]:
        world = World(AMPLE)
        r = world.admit("r", 400)
        world.prefill(r)
        found = [world.decode(r).attended for _ in range(2 * COMPARED_STEPS)]
        compared.append(world.engine.statistics.compared)
        world.close()
        return found

    compared: list[int] = []
    sampled = attended()
    monkeypatch.setattr("oasis_runtime.core.engine.COMPARED_STEPS", 1 << 30)
    assert attended() == sampled
    assert compared[0] > compared[1] == 0


def test_a_request_in_the_lane_of_another_selects_as_if_that_had_never_been() -> None:
    def sets(before: bool) -> list[Attended]:
        world = World(AMPLE, lanes=1)
        if before:
            other = world.admit("another", 300)
            world.prefill(other)
            world.decode(other)
            world.release(other)
        r = world.admit("r", 400)
        world.prefill(r)
        found = [world.decode(r).attended for _ in range(5)]
        world.close()
        return found

    assert sets(before=True) == sets(before=False)


# ------------------------------------------------------------------ remote requests


def admitted(world: World, prompt: int = 400) -> tuple[Request, Selection]:
    """A request whose prompt another engine has computed and of which only the hot pages came."""
    owner = World(AMPLE)
    source = owner.admit("r", prompt)
    owner.prefill(source)
    selection = owner.engine.requests.selection_of("r")
    assert selection is not None
    r = world.admit("r", prompt)
    world.grow(r, prompt)
    r.computed = prompt - 1
    blocks, theirs = np.array(r.blocks, np.int32), np.array(source.blocks)
    world.engine.prepare(blocks)
    for name in ("low", "high", "scale"):
        getattr(world.tables, name)[:, blocks] = getattr(owner.tables, name)[:, theirs]
    world.filled[blocks] = owner.filled[theirs]
    pages = hot_pages(selection, 1, len(blocks))
    data = owner.host[pages[:, 0], theirs[pages[:, 2]], pages[:, 1]]
    land(world, r, pages, data)
    world.adopt(r, selection, remote=True)
    owner.close()
    return r, selection


def land(world: World, r: Request, pages: np.ndarray, data: np.ndarray) -> None:
    here = pages.astype(np.int32).copy()
    here[:, 2] = np.array(r.blocks, np.int32)[pages[:, 2]]
    flat = np.ascontiguousarray(data).view(np.uint8).reshape(-1, world.geometry.page_bytes)
    world.engine.land(r.name, np.ascontiguousarray(here), flat, "demand")


def test_an_adopted_request_attends_to_its_peers_set_from_the_first_step(world: World) -> None:
    r, selection = admitted(world)
    assert world.engine.requests.is_remote("r")
    outcome = world.decode(r)
    assert outcome.served == {"r": "sparse"}
    for (_, layer, head), blocks in outcome.attended.items():
        assert {*selection.blocks[layer, head]} <= {*blocks}
    assert world.late == 0


def test_a_remote_request_wants_only_pages_that_are_absent(world: World) -> None:
    r, _ = admitted(world)
    wanted = 0
    for _ in range(10):
        wants = world.decode(r).wants.get("r", np.empty((0, 3), np.int32))
        chosen = world.engine.requests.selection_of("r")
        assert chosen is not None
        for layer, head, logical in wants:
            assert not world.tables.present[layer, head, r.blocks[logical]]
            assert logical in chosen.blocks[layer, head, : chosen.count[layer, head]]
        assert len(np.unique(wants, axis=0)) == len(wants)
        wanted += len(wants)
    assert wanted


def test_a_remote_request_whose_copies_fail_stays_sparse_and_asks_for_them_again(
    world: World,
) -> None:
    r, selection = admitted(world)
    broken(world)
    outcome = world.decode(r)
    assert outcome.served == {"r": "sparse"}
    assert not any({*selection.blocks[k[1:]]} & {*b} for k, b in outcome.attended.items())
    mended(world)
    world.engine.check()
    chosen = world.engine.requests.selection_of("r")
    assert chosen is not None
    outcome = world.decode(r)
    assert outcome.served == {"r": "sparse"}
    for (_, layer, head), blocks in outcome.attended.items():
        wanted = chosen.blocks[layer, head, : chosen.count[layer, head]]
        here = world.tables.present[layer, head, np.array(r.blocks)[wanted]] == 1
        assert {*wanted[here]} <= {*blocks}


def test_a_wanted_page_is_wanted_no_more_once_it_has_landed(world: World) -> None:
    r, _ = admitted(world)
    wants = next(w["r"] for w in (world.decode(r).wants for _ in range(20)) if w)
    g = world.geometry
    land(world, r, wants, np.zeros((len(wants), g.page_bytes // 4), np.float32))
    assert (world.tables.present[wants[:, 0], wants[:, 1], np.array(r.blocks)[wants[:, 2]]]).all()
    again = world.decode(r).wants.get("r", np.empty((0, 3), np.int32))
    assert not {*map(tuple, again.tolist())} & {*map(tuple, wants.tolist())}
    arrived = world.engine.statistics.moved_bytes["remote", "host", "demand"]
    assert arrived >= len(wants) * g.page_bytes


def test_a_landed_page_that_is_still_selected_is_resident_for_the_next_step(world: World) -> None:
    r, _ = admitted(world)
    for _ in range(10):
        wants = world.decode(r).wants.get("r", np.empty((0, 3), np.int32))
        land(world, r, wants, np.zeros((len(wants), world.geometry.page_bytes // 4), np.float32))
        world.decode(r)
        world.engine.check()
        chosen = world.engine.requests.selection_of("r")
        assert chosen is not None
        for layer, head, logical in wants:
            if logical in chosen.blocks[layer, head]:
                assert world.tables.slot_of[layer, head, r.blocks[logical]] >= 0
                return
    pytest.fail("no landed page was selected again; the test has lost its subject")


def test_a_wanted_page_that_landed_in_time_is_attended_to_in_the_step_it_was_wanted_for(
    world: World,
) -> None:
    r, _ = admitted(world)
    wants = next(w["r"] for w in (world.decode(r).wants for _ in range(20)) if w)
    land(world, r, wants, np.zeros((len(wants), world.geometry.page_bytes // 4), np.float32))
    attended = world.decode(r).attended
    for layer, head, logical in wants:
        assert logical in attended["r", layer, head]


def test_pages_asked_for_besides_the_selection_are_wanted_too(world: World) -> None:
    admitted(world)
    extra = np.array([[1, 0, 7]], np.int32)
    wants = world.step({"r": 1}, between=lambda: world.engine.want("r", extra)).wants["r"]
    assert [1, 0, 7] in wants.tolist()


def test_a_request_whose_peer_is_gone_computes_again(world: World) -> None:
    r, _ = admitted(world)
    world.decode(r)
    world.engine.requests.lose("r")
    assert not world.engine.requests.is_remote("r")
    r.computed = 0
    assert world.step({"r": 200}).served == {"r": "dense"}
    world.prefill(r)
    assert world.decode(r).served == {"r": "sparse"}
    assert not world.decode(r).wants


def test_a_remote_request_is_sparse_and_selects_even_below_the_dense_bound() -> None:
    world = World(AMPLE, selection=AUTO)
    r, _ = admitted(world, prompt=100)
    for _ in range(3):
        assert world.decode(r).served == {"r": "sparse"}
    world.close()


def test_a_remote_request_comes_before_a_local_one_that_can_be_dense() -> None:
    world = full()
    local = world.admit("a", 300)
    world.prefill(local)
    assert world.decode(local).served == {"a": "sparse"}
    remote, _ = admitted(world)
    late = world.late
    assert world.decode(local, remote).served == {"a": "dense", "r": "sparse"}
    assert world.late == late
    world.close()


def test_a_local_request_does_not_change_with_every_remote_one_that_comes_and_goes() -> None:
    world = full()
    local = world.admit("a", 300)
    world.prefill(local)
    served, rounds = [], 12
    for _ in range(rounds):
        remote, _ = admitted(world)
        served += [world.decode(local, remote).served["a"] for _ in range(2)]
        world.release(remote)
        served += [world.decode(local).served["a"] for _ in range(3)]
    changes = sum(now != then for now, then in pairwise(served))
    assert 2 <= changes <= 1 + 2 * len(served) // REST_STEPS
    world.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"blocks": np.full((2, 2, 4), 99, np.int32)}, "ascending within 0..24"),
        ({"blocks": np.full((2, 2, 4), -1, np.int32)}, "ascending within"),
        ({"blocks": np.full((2, 2, 4), 3, np.int32)}, "ascending within"),
        ({"count": np.full((2, 2), 5, np.int32)}, r"counts are not within 0\.\.4"),
        ({"count": np.full((2, 2), -1, np.int32)}, "counts are not within"),
        ({"count": np.full((3, 2), 1, np.int32)}, "layers and heads"),
        ({"window": 26}, "window starts at block 26"),
        ({"window": -1}, "window starts at block -1"),
        ({"length": 16}, "ascending within 0..0"),
    ],
)
def test_a_selection_that_cannot_be_one_of_this_model_is_refused(
    world: World, change: dict[str, object], message: str
) -> None:
    blocks = np.broadcast_to(np.array([2, 5, 9, 11], np.int32), (2, 2, 4))
    good = {"blocks": blocks, "count": np.full((2, 2), 4, np.int32), "window": 20, "length": 400}
    world.engine.requests.adopt("r", Selection(**good), remote=False)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        world.engine.requests.adopt("r", Selection(**(good | change)), remote=False)  # type: ignore[arg-type]
    world.engine.requests.forget("r")


# ------------------------------------------------------------------ misuse


def test_layers_before_the_step_are_refused(world: World) -> None:
    with pytest.raises(RuntimeError, match="begin_step"):
        world.engine.attend(0)
    with pytest.raises(RuntimeError, match="begin_step"):
        world.engine.end_step()


def test_an_unknown_request_has_no_selection_and_can_be_forgotten(world: World) -> None:
    assert world.engine.requests.selection_of("nobody") is None
    assert not world.engine.requests.is_remote("nobody")
    world.engine.requests.forget("nobody")


def test_the_default_configuration_keeps_sinks_and_window_of_64_tokens() -> None:
    world = World(AMPLE, selection=SelectionConfig(budget_tokens=64, mode="sparse"))
    r = world.admit("r", 500)
    world.prefill(r)
    for blocks in world.decode(r).attended.values():
        assert blocks[:4] == (0, 1, 2, 3)
        assert {*range((501 - 64) // BLOCK, 501 // BLOCK + 1)} <= {*blocks}
    world.close()
