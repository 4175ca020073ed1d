"""One role, budget over the context: every answer is stock vLLM's, token by token (fp32).

Prompts are prefilled in chunks of 256 tokens between the decode steps of others. No drafting here;
``test_core_drafting.py`` has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oasis_runtime.contract import (
    AuditConfig,
    Metric,
    PredictionConfig,
    PrefetchConfig,
    SelectionConfig,
    TierConfig,
)
from tests.engine.configs import BLOCK, PAGES_A_BLOCK, engine_config
from tests.engine.inprocess.asks import Ask, Held
from tests.engine.inprocess.child import Setup
from tests.engine.inprocess.engine import EngineProcess
from tests.engine.prompts import Prose
from tests.engine.stock import Stock

CHUNK = 256
BUDGET = 4096


@pytest.fixture(scope="module")
def engine(model: Path) -> Iterator[EngineProcess]:
    config = engine_config(
        model,
        tiers=TierConfig(host_bytes=1 << 30, fast_bytes=800 << 20),
        selection=SelectionConfig(mode="sparse", budget_tokens=BUDGET),
        prediction=PredictionConfig(method="previous"),
        prefetch=PrefetchConfig(cap=1.0, wait_ms=60000),
        audit=AuditConfig(every_steps=4),
    )
    made = EngineProcess(Setup(config, extra=("--max-num-batched-tokens", str(CHUNK))))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _nothing_is_left(engine: EngineProcess) -> Iterator[None]:
    """After every test: no request, block, lane or copy that nobody asked for any more."""
    yield
    assert engine.held() == Held(requests=0, host_blocks=0, tracked=0, arriving=0)


def test_a_sparse_answer_is_stock_vllms(engine: EngineProcess, stock: Stock, prose: Prose) -> None:
    ask = Ask(prose.passage(0, 1000), 48)
    expected = stock.ask(ask)
    run = engine.run(ask)
    assert run.tokens == expected.tokens
    assert run.counted.value(Metric.STEPS, mode="sparse") == 47
    assert run.counted.value(Metric.STEPS, mode="dense") == 0
    assert run.counted.value(Metric.PAGES_LATE) == 0


def test_answers_that_begin_at_any_edge_of_a_block_are_stock_vllms(
    engine: EngineProcess, stock: Stock, prose: Prose
) -> None:
    lengths = (BLOCK - 1, BLOCK, BLOCK + 1, 4 * BLOCK - 1, 4 * BLOCK)
    asks = [Ask(prose.passage(1, length), 40) for length in lengths]
    expected = stock.ask(*asks)
    assert engine.run(*asks).tokens == expected.tokens


def test_the_audit_finds_the_whole_mass_and_no_error(engine: EngineProcess, prose: Prose) -> None:
    counted = engine.run(Ask(prose.passage(2, 700), 40)).counted
    assert counted.value(f"{Metric.MASS_RECALL}_count") >= 5
    assert counted.mean(Metric.MASS_RECALL) == pytest.approx(1.0, abs=1e-5)
    assert counted.mean(Metric.OUTPUT_ERROR) < 1e-3


def test_the_five_rates_are_counted_and_agree_with_each_other(
    engine: EngineProcess, prose: Prose
) -> None:
    counted = engine.run(Ask(prose.passage(3, 600), 24)).counted
    selected = counted.value(Metric.PAGES_SELECTED)
    predicted = counted.value(Metric.PAGES_PREDICTED)
    assert 0 < counted.value(Metric.PAGES_RESIDENT) <= selected
    assert 0 <= counted.value(Metric.PAGES_LATE) <= selected
    assert 0 < counted.value(Metric.PAGES_AGREED) <= predicted <= selected
    assert counted.value(f"{Metric.MASS_RECALL}_count") > 0
    assert counted.value(f"{Metric.MASS_RECALL}_count") == counted.value(
        f"{Metric.OUTPUT_ERROR}_count"
    )


def test_ragged_requests_at_once_get_stock_vllms_answers(
    engine: EngineProcess, stock: Stock, prose: Prose
) -> None:
    """More than the engine serves at once, and some come while others decode."""
    lengths = (40, 700, 333, 7, 64, 500)
    asks = [
        Ask(prose.passage(10 + i, length), 20 + 3 * i, after=5 * i)
        for i, length in enumerate(lengths)
    ]
    expected = stock.ask(*asks)
    assert engine.run(*asks).tokens == expected.tokens


def test_a_prompt_is_prefilled_in_chunks_while_others_decode_sparsely(
    engine: EngineProcess, stock: Stock, prose: Prose
) -> None:
    first = Ask(prose.passage(20, 500), 40)
    second = Ask(prose.passage(21, 3 * CHUNK + 17), 16, after=6)
    expected = stock.ask(first, second)
    run = engine.run(first, second)
    assert run.tokens == expected.tokens
    assert run.counted.value(Metric.STEPS, mode="dense") == 0


def test_samples_of_one_prompt_are_stock_vllms_with_the_same_seed(
    engine: EngineProcess, stock: Stock, prose: Prose
) -> None:
    """Here the prompt takes chunks, whose samples are thrown away; there it takes none."""
    ask = Ask(prose.passage(22, 2 * CHUNK + 30), 40, n=3, temperature=0.8, seed=7)
    expected = stock.ask(ask)
    outputs = engine.run(ask).answers[0].outputs
    assert len(set(outputs)) == 3
    assert [outputs] == expected.outputs


def test_an_abort_in_mid_answer_leaves_nothing_and_disturbs_nobody(
    engine: EngineProcess, stock: Stock, prose: Prose
) -> None:
    stays = Ask(prose.passage(23, 450), 32)
    goes = Ask(prose.passage(24, 700), 64, abort_after=5)
    expected = stock.ask(stays)
    run = engine.run(stays, goes)
    assert run.tokens[0] == expected.tokens[0]
    assert 5 <= len(run.tokens[1]) < goes.tokens


def test_an_abort_during_prefill_leaves_nothing(engine: EngineProcess, prose: Prose) -> None:
    """The short one's client goes away with the first token, when the long one has begun."""
    long = Ask(prose.passage(25, 4 * CHUNK), 1)
    assert engine.run(long, Ask(prose.passage(26, 20), 8, abort_after=1)).answers[0].tokens


# ------------------------------------------------------------------ prefix caching


def test_a_second_turn_reuses_the_first_and_is_answered_as_without_a_cache(
    engine: EngineProcess, stock: Stock, prose: Prose
) -> None:
    prompt = prose.passage(30, 500)
    first = engine.run(Ask(prompt, 40)).tokens[0]
    turn = Ask((*prompt, *first, *prose.passage(31, 50)), 24)
    expected = stock.ask(turn)
    (answer,) = engine.run(turn).answers
    assert answer.cached == (len(prompt) + 40 - 1) // BLOCK * BLOCK
    assert [answer.tokens] == expected.tokens


def test_a_repeated_prompt_reuses_its_blocks_and_gets_the_same_answer(
    engine: EngineProcess, prose: Prose
) -> None:
    ask = Ask(prose.passage(32, 20 * BLOCK + 5), 24)
    first, again = (engine.run(ask).answers[0] for _ in range(2))
    assert (first.cached, again.cached) == (0, 20 * BLOCK)
    assert again.tokens == first.tokens


@pytest.mark.parametrize(
    ("passage", "options", "found"),
    [(33, {}, 5), (45, {"mode": "dense"}, 2), (46, {"budget_tokens": 64}, 2)],
    ids=["same", "dense", "another budget"],
)
def test_what_was_decoded_sparsely_is_found_by_those_of_the_same_budget(
    engine: EngineProcess, prose: Prose, passage: int, options: dict[str, object], found: int
) -> None:
    prompt = prose.passage(passage, 2 * BLOCK)
    (answer,) = engine.run(Ask(prompt, 3 * BLOCK + 1)).tokens
    (turn,) = engine.run(Ask((*prompt, *answer, 1), 1, oasis=options)).answers
    assert turn.cached == found * BLOCK


def test_what_was_decoded_densely_is_found_by_everyone(engine: EngineProcess, prose: Prose) -> None:
    prompt = prose.passage(34, 2 * BLOCK)
    (answer,) = engine.run(Ask(prompt, 3 * BLOCK + 1, oasis={"mode": "dense"})).tokens
    assert engine.run(Ask((*prompt, *answer, 1), 1)).answers[0].cached == 5 * BLOCK


def test_what_was_computed_on_top_of_sparse_kv_is_no_more_exact_than_that(
    engine: EngineProcess, prose: Prose
) -> None:
    prompt = prose.passage(37, 2 * BLOCK)
    (answer,) = engine.run(Ask(prompt, 2 * BLOCK + 1)).tokens
    second = (*prompt, *answer, *prose.passage(38, 3 * BLOCK))
    engine.run(Ask(second, 1))
    cached = [
        engine.run(Ask((*second, number), 1, oasis=options)).answers[0].cached
        for number, options in enumerate(({}, {"mode": "dense"}))
    ]
    assert cached == [7 * BLOCK, 2 * BLOCK]


def test_two_requests_share_a_prefix_while_both_decode(
    engine: EngineProcess, stock: Stock, prose: Prose
) -> None:
    common = prose.passage(35, 640)
    asks = [Ask((*common, *prose.passage(36 + i, 30)), 32, after=12 * i) for i in range(3)]
    expected = stock.ask(*asks)
    assert engine.run(*asks).tokens == expected.tokens


# ------------------------------------------------------------------ a request's own options


def test_a_dense_request_among_sparse_ones(
    engine: EngineProcess, stock: Stock, prose: Prose
) -> None:
    asks = [
        Ask(prose.passage(40, 400), 24),
        Ask(prose.passage(41, 500), 24, oasis={"mode": "dense"}),
        Ask(prose.passage(42, 300), 24),
    ]
    expected = stock.ask(*asks)
    run = engine.run(*asks)
    assert run.tokens == expected.tokens
    assert run.counted.value(Metric.STEPS, mode="dense") == 23
    assert run.counted.value(Metric.STEPS, mode="sparse") == 46
    assert run.counted.value(Metric.FALLBACKS, reason="mode") == 1


def test_an_automatic_request_of_short_context_is_dense(
    engine: EngineProcess, stock: Stock, prose: Prose
) -> None:
    ask = Ask(prose.passage(43, 500), 24, oasis={"mode": "auto"})
    expected = stock.ask(ask)
    run = engine.run(ask)
    assert run.tokens == expected.tokens
    assert run.counted.value(Metric.STEPS, mode="sparse") == 0
    assert run.counted.value(Metric.FALLBACKS, reason="short_context") == 1


def test_an_automatic_request_becomes_sparse_when_it_outgrows_the_bound(
    engine: EngineProcess, prose: Prose
) -> None:
    """Dense up to twice the budget and what is local: 2 * (64 + 64 + 64) = 384 tokens."""
    ask = Ask(prose.passage(44, 384 - 10), 24, oasis={"mode": "auto", "budget_tokens": 64})
    counted = engine.run(ask).counted
    assert counted.value(Metric.STEPS, mode="dense") == 10
    assert counted.value(Metric.STEPS, mode="sparse") == 13


def test_a_smaller_budget_selects_less(engine: EngineProcess, prose: Prose) -> None:
    prompt = prose.passage(45, 700)
    whole = engine.run(Ask(prompt, 16)).counted
    small = engine.run(Ask(prompt, 16, oasis={"budget_tokens": 128})).counted
    assert small.value(Metric.PAGES_SELECTED) == 16 * 128 // BLOCK * PAGES_A_BLOCK
    assert small.value(Metric.PAGES_SELECTED) < whole.value(Metric.PAGES_SELECTED) / 3


def test_options_that_mean_nothing_count_as_absent(
    engine: EngineProcess, stock: Stock, prose: Prose
) -> None:
    """The server refuses them; this is vLLM called without it."""
    ask = Ask(prose.passage(46, 200), 8, oasis={"budget_tokens": "many"})
    expected = stock.ask(ask)
    assert engine.run(ask).tokens == expected.tokens
