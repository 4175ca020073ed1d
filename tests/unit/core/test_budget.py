"""How many blocks a head may select, and when a context is short."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oasis_runtime.contract import RequestOptions, SelectionConfig
from oasis_runtime.core.budget import Budget

SLOW = (HealthCheck.too_slow,)
"""A machine that is busy with something else is no failure."""

CONFIGS = st.builds(
    SelectionConfig,
    mode=st.sampled_from(("auto", "sparse", "dense")),
    budget_tokens=st.integers(64, 131072),
    sink_tokens=st.integers(0, 1024),
    window_tokens=st.integers(1, 4096),
    budget_grows_from=st.none() | st.integers(128, 1 << 20),
)
BLOCKS = st.sampled_from((16, 32, 64, 128))


def default(block: int = 32, **options: object) -> Budget:
    return Budget.of(SelectionConfig(), RequestOptions.model_validate(options), block)


def test_the_default_budget_in_blocks() -> None:
    budget = default()
    assert (budget.selected, budget.sinks, budget.window_blocks) == (64, 2, 4)
    assert budget.most_blocks(4096) == 70


def test_a_request_overrides_mode_and_budget() -> None:
    budget = default(mode="sparse", budget_tokens=512)
    assert (budget.selected, budget.mode) == (16, "sparse")
    assert default(budget_tokens=512).mode == "auto"


def test_a_budget_below_a_block_still_selects_one() -> None:
    assert default(block=128, budget_tokens=64).selected == 1


def test_auto_is_dense_up_to_twice_the_budget_and_what_is_local() -> None:
    assert default().dense_up_to == 2 * (2048 + 64 + 64)


def test_sparse_is_never_dense_for_length_and_dense_always() -> None:
    assert default(mode="sparse").dense_up_to == 0
    assert default(mode="dense").dense_up_to > 1 << 40


def test_the_default_budget_is_one_and_a_half_times_as_large_at_twice_the_context() -> None:
    found = [default().selected_at(tokens) for tokens in (4096, 32768, 65536, 131072)]
    assert found == [64, 64, 90, 128]


def test_a_budget_that_is_not_to_grow_does_not() -> None:
    config = SelectionConfig(budget_grows_from=None)
    assert Budget.of(config, RequestOptions(), 32).selected_at(1 << 24) == 64


@given(CONFIGS, BLOCKS, st.integers(0, 1 << 22), st.integers(0, 1 << 20))
@settings(deadline=None, suppress_health_check=SLOW)
def test_a_budget_never_falls_with_the_context_and_makes_no_long_one_dense(
    config: SelectionConfig, block: int, length: int, more: int
) -> None:
    budget = Budget.of(config, RequestOptions(), block)
    selected = budget.selected_at(length)
    assert budget.selected <= selected <= budget.selected_at(length + more)
    if length > budget.short_up_to:
        assert 2 * selected * block < length


@given(CONFIGS, BLOCKS, st.integers(0, 1 << 20))
@settings(deadline=None, suppress_health_check=SLOW)
def test_the_window_holds_its_tokens_before_the_next_one(
    config: SelectionConfig, block: int, length: int
) -> None:
    budget = Budget.of(config, RequestOptions(), block)
    start = budget.window_start(length)
    oldest = max(0, length + 1 - config.window_tokens)
    assert budget.sinks <= start <= max(budget.sinks, oldest // block)
    assert start * block <= oldest or start == budget.sinks


@given(CONFIGS, BLOCKS, st.integers(1, 1 << 20), st.data())
@settings(deadline=None, suppress_health_check=SLOW)
def test_a_decode_step_of_up_to_a_block_fits_the_window_blocks(
    config: SelectionConfig, block: int, length: int, data: st.DataObject
) -> None:
    """The set of a step was chosen at ``length`` tokens; the step may add up to a block."""
    budget = Budget.of(config, RequestOptions(), block)
    scheduled = data.draw(st.integers(1, block))
    last = -(-(length + scheduled) // block)
    assert last - budget.window_start(length) <= budget.window_blocks


@given(CONFIGS, BLOCKS, st.integers(0, 1 << 20), st.integers(0, 1 << 10))
@settings(deadline=None, suppress_health_check=SLOW)
def test_the_window_never_moves_back(
    config: SelectionConfig, block: int, length: int, more: int
) -> None:
    budget = Budget.of(config, RequestOptions(), block)
    assert budget.window_start(length + more) >= budget.window_start(length)
