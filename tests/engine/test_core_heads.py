"""Draft tokens of EAGLE heads: their rows ride along as those of an n-gram do, and the heads' own
layer stays vLLM's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oasis_runtime.contract import Metric, PredictionConfig, PrefetchConfig, SelectionConfig
from oasis_runtime.core.drafting import SAMPLES
from tests.engine.configs import BLOCK, PAGE_BYTES, PAGES_A_BLOCK, engine_config
from tests.engine.heads import random_heads
from tests.engine.inprocess.asks import Ask, Held
from tests.engine.inprocess.child import Setup
from tests.engine.inprocess.engine import EngineProcess, Run
from tests.engine.prompts import Prose
from tests.engine.stock import Stock

DRAFTED = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
FAST = 110 * PAGES_A_BLOCK * PAGE_BYTES


@pytest.fixture(scope="module")
def engine(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    heads = random_heads(model, tmp_path_factory.mktemp("heads"))
    config = engine_config(
        model,
        tiers={"host_bytes": 1 << 30, "fast_bytes": FAST},
        selection=SelectionConfig(mode="sparse", budget_tokens=2048),
        prediction=PredictionConfig(
            method="auto", draft_heads="eagle", draft_model=str(heads), draft_tokens=2
        ),
        prefetch=PrefetchConfig(cap=1.0, wait_ms=60000),
    )
    made = EngineProcess(Setup(config))
    yield made
    made.close()


@pytest.fixture(scope="module")
def run(engine: EngineProcess, stock: Stock, prose: Prose) -> Run:
    asks = [Ask(prose.passage(1, 500), 72), Ask(prose.passage(2, 3 * BLOCK - 1), 40, after=5)]
    expected = stock.ask(*asks)
    found = engine.run(*asks)
    assert found.tokens == expected.tokens
    assert engine.held() == Held(requests=0, host_blocks=0, tracked=0, arriving=0)
    return found


def test_heads_draft_for_sparse_requests(run: Run) -> None:
    assert run.counted.value(DRAFTED) >= 2 * SAMPLES
    assert run.counted.value(Metric.STEPS, mode="dense") == 0


def test_heads_whose_drafts_are_wrong_are_dropped(run: Run) -> None:
    """The n-gram comes after them, whose drafts in prose are wrong too now and then."""
    assert run.counted.value(Metric.DRAFTS_DROPPED, method="draft") == 2
    assert run.counted.value(ACCEPTED) < run.counted.value(DRAFTED) / 2
