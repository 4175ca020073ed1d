"""Tiers that are too small for all requests at once: some are preempted, some served densely, and
every answer is still stock vLLM's (budget over the context, fp32)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oasis_runtime.contract import (
    Metric,
    PredictionConfig,
    PrefetchConfig,
    SelectionConfig,
    TierConfig,
)
from tests.engine.configs import BLOCK, PAGE_BYTES, PAGES_A_BLOCK, engine_config
from tests.engine.inprocess.asks import Ask, Held
from tests.engine.inprocess.child import Setup
from tests.engine.inprocess.engine import EngineProcess
from tests.engine.prompts import Prose
from tests.engine.stock import Stock

PREEMPTIONS = "vllm:num_preemptions_total"
CONTEXT = 2048
HOST_BLOCKS = 72
PROMPT, ANSWER = 17 * BLOCK, 2 * BLOCK
"""Four of them end with 76 blocks."""
BUDGET = CONTEXT
FAST_BLOCKS = 72
"""Room for three of them; the engine needs room for one full budget."""


@pytest.fixture(scope="module")
def engine(model: Path) -> Iterator[EngineProcess]:
    block_bytes = PAGES_A_BLOCK * PAGE_BYTES
    config = engine_config(
        model,
        max_model_len=CONTEXT,
        tiers=TierConfig(
            host_bytes=(HOST_BLOCKS + 1) * block_bytes, fast_bytes=FAST_BLOCKS * block_bytes
        ),
        selection=SelectionConfig(mode="sparse", budget_tokens=BUDGET),
        prediction=PredictionConfig(method="previous"),
        prefetch=PrefetchConfig(cap=1.0, wait_ms=60000),
    )
    made = EngineProcess(Setup(config))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _nothing_is_left(engine: EngineProcess) -> Iterator[None]:
    yield
    assert engine.held() == Held(requests=0, host_blocks=0, tracked=0, arriving=0)


def test_preempted_requests_get_stock_vllms_answers(
    engine: EngineProcess, stock: Stock, prose: Prose
) -> None:
    asks = [Ask(prose.passage(i, PROMPT), ANSWER) for i in range(4)]
    expected = stock.ask(*asks)
    run = engine.run(*asks)
    assert run.counted.value(PREEMPTIONS) > 0
    assert run.tokens == expected.tokens


def test_a_request_without_room_in_the_fast_tier_is_served_densely_and_counted(
    engine: EngineProcess, stock: Stock, prose: Prose
) -> None:
    asks = [Ask(prose.passage(i, PROMPT), BLOCK) for i in range(4)]
    expected = stock.ask(*asks)
    run = engine.run(*asks)
    assert run.tokens == expected.tokens
    assert run.counted.value(Metric.FALLBACKS, reason="fast_tier_full") > 0
    assert run.counted.value(Metric.STEPS, mode="dense") > 0
    assert run.counted.value(Metric.STEPS, mode="sparse") > 0
    assert run.counted.value(PREEMPTIONS) == 0


def test_a_preempted_request_is_served_on_as_it_asked(
    engine: EngineProcess, stock: Stock, prose: Prose
) -> None:
    asks = [Ask(prose.passage(i, PROMPT), ANSWER, oasis={"mode": "dense"}) for i in range(4)]
    expected = stock.ask(*asks)
    run = engine.run(*asks)
    assert run.counted.value(PREEMPTIONS) > 0
    assert run.tokens == expected.tokens
    assert run.counted.value(Metric.STEPS, mode="sparse") == 0


def test_an_abort_of_a_preempted_request_leaves_nothing(
    engine: EngineProcess, prose: Prose
) -> None:
    """All clients but one go away when the pool has just become too small."""
    asks = [
        Ask(prose.passage(i, PROMPT), ANSWER, abort_after=None if i == 0 else BLOCK + 2)
        for i in range(4)
    ]
    run = engine.run(*asks)
    assert run.counted.value(PREEMPTIONS) > 0
    assert len(run.tokens[0]) == ANSWER
    assert max(len(tokens) for tokens in run.tokens[1:]) < ANSWER
