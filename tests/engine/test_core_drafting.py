"""Sparse decode with n-gram drafting, as the configuration has it by default: the draft token's row
rides along, is used where it is right, and must leave no trace where it is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oasis_runtime.contract import Metric, PrefetchConfig, SelectionConfig, TierConfig
from tests.engine.configs import BLOCK, engine_config
from tests.engine.inprocess.asks import Ask, Held, Tokens
from tests.engine.inprocess.child import Setup
from tests.engine.inprocess.engine import EngineProcess
from tests.engine.prompts import Prose
from tests.engine.stock import Stock

DRAFTED = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"


@pytest.fixture(scope="module")
def engine(model: Path) -> Iterator[EngineProcess]:
    config = engine_config(
        model,
        tiers=TierConfig(host_bytes=1 << 30, fast_bytes=600 << 20),
        selection=SelectionConfig(mode="sparse", budget_tokens=2048),
        prefetch=PrefetchConfig(cap=1.0, wait_ms=60000),
    )
    made = EngineProcess(Setup(config))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _nothing_is_left(engine: EngineProcess) -> Iterator[None]:
    yield
    assert engine.held() == Held(requests=0, host_blocks=0, tracked=0, arriving=0)


def repeating(prose: Prose, number: int, length: int) -> Tokens:
    """A passage that begins anew, so that drafts are found and often right."""
    passage = prose.passage(number, 2 * length // 3)
    return (*passage, *passage[: length - len(passage)])


def test_accepted_and_rejected_drafts_give_stock_vllms_answer(
    engine: EngineProcess, stock: Stock, prose: Prose
) -> None:
    asks = [Ask(repeating(prose, 0, 700), 72), Ask(prose.passage(1, 500), 72)]
    expected = stock.ask(*asks)
    run = engine.run(*asks)
    assert run.tokens == expected.tokens
    accepted, drafted = (run.counted.value(name) for name in (ACCEPTED, DRAFTED))
    assert accepted > 10
    assert drafted - accepted > 10
    assert run.counted.value(Metric.STEPS, mode="dense") == 0


def test_drafts_at_the_edge_of_a_block_give_stock_vllms_answer(
    engine: EngineProcess, stock: Stock, prose: Prose
) -> None:
    lengths = range(3 * BLOCK - 2, 3 * BLOCK + 2)
    asks = [Ask(repeating(prose, 2, length), 2 * BLOCK + 8) for length in lengths]
    expected = stock.ask(*asks)
    run = engine.run(*asks)
    assert run.tokens == expected.tokens
    assert 0 < run.counted.value(ACCEPTED) < run.counted.value(DRAFTED)


def test_ragged_requests_with_drafts_get_stock_vllms_answers(
    engine: EngineProcess, stock: Stock, prose: Prose
) -> None:
    lengths = (700, 95, 350, 31, 512)
    asks = [
        Ask(repeating(prose, 4 + i, length), 40, after=4 * i) for i, length in enumerate(lengths)
    ]
    expected = stock.ask(*asks)
    assert engine.run(*asks).tokens == expected.tokens


def test_a_repeated_prompt_with_drafts_reuses_its_blocks_and_gets_the_same_answer(
    engine: EngineProcess, prose: Prose
) -> None:
    ask = Ask(repeating(prose, 10, 10 * BLOCK + 1), 40)
    first, again = (engine.run(ask).answers[0] for _ in range(2))
    assert again.cached == 10 * BLOCK
    assert again.tokens == first.tokens


def test_no_block_with_a_sparsely_decoded_token_is_found_by_a_dense_request(
    engine: EngineProcess, prose: Prose
) -> None:
    """Automatic at a budget of 64 tokens: dense up to 384. The step that reaches the bound has a
    draft's row beyond it."""
    options = {"mode": "auto", "budget_tokens": 64}
    prompt = repeating(prose, 11, 384 - 2 * BLOCK)
    answer = engine.run(Ask(prompt, 4 * BLOCK, oasis=options)).tokens[0]
    (turn,) = engine.run(Ask((*prompt, *answer, 1), 1, oasis={"mode": "dense"})).answers
    assert turn.cached == 384


def test_an_abort_between_draft_and_verification_leaves_nothing(
    engine: EngineProcess, prose: Prose
) -> None:
    asks = [Ask(repeating(prose, 12 + i, 200), 60, abort_after=8 + i) for i in range(3)]
    assert all(len(tokens) < 60 for tokens in engine.run(*asks).tokens)
