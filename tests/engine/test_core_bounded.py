"""A fast tier that holds little more than what is selected, against one that holds everything."""

from __future__ import annotations

from dataclasses import dataclass
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
from tests.engine.configs import PAGE_BYTES, PAGES_A_BLOCK, engine_config
from tests.engine.inprocess.asks import Ask, Held
from tests.engine.inprocess.child import Setup
from tests.engine.inprocess.engine import EngineProcess, Run
from tests.engine.prompts import Prose

BUDGET = 512
MOST_BLOCKS = BUDGET // 32 + 2 + 4
"""Selection, sinks and window of one request."""
BOUNDED = (2 * MOST_BLOCKS + 2) * PAGES_A_BLOCK * PAGE_BYTES
UNBOUNDED = 300 << 20


def start(model: Path, fast_bytes: int) -> EngineProcess:
    config = engine_config(
        model,
        tiers=TierConfig(host_bytes=512 << 20, fast_bytes=fast_bytes),
        selection=SelectionConfig(mode="sparse", budget_tokens=BUDGET, escalate=False),
        prediction=PredictionConfig(method="previous"),
        prefetch=PrefetchConfig(cap=1.0, wait_ms=60000),
        audit=AuditConfig(every_steps=4),
    )
    return EngineProcess(Setup(config))


@dataclass(frozen=True)
class Pair:
    bounded: Run
    unbounded: Run


@pytest.fixture(scope="module")
def pair(model: Path, prose: Prose) -> Pair:
    """Both serve the same two requests, beside each other."""
    asks = [Ask(prose.passage(i, 1200 - 200 * i), 36, after=i) for i in range(2)]
    engines = [start(model, BOUNDED), start(model, UNBOUNDED)]
    before = [engine.metrics() for engine in engines]
    for engine in engines:
        engine.begin(*asks)
    answers = [engine.answers() for engine in engines]
    after = [engine.metrics() for engine in engines]
    for engine in engines:
        assert engine.held() == Held(requests=0, host_blocks=0, tracked=0, arriving=0)
        engine.close()
    return Pair(*(Run(a, n.since(o)) for a, n, o in zip(answers, after, before, strict=True)))


def loaded_pages(run: Run) -> float:
    return run.counted.value(Metric.TIER_BYTES, source="host", target="fast") / PAGE_BYTES


def test_a_bounded_fast_tier_gives_the_answer_of_an_unbounded_one(pair: Pair) -> None:
    assert pair.bounded.tokens == pair.unbounded.tokens
    for run in (pair.bounded, pair.unbounded):
        assert run.counted.value(Metric.PAGES_LATE) == 0
        assert run.counted.value(Metric.STEPS, mode="dense") == 0


def test_the_bounded_tier_evicted_and_loaded_again(pair: Pair) -> None:
    """Both selected the same pages; the unbounded tier loaded each at most once."""
    selected = pair.bounded.counted.value(Metric.PAGES_SELECTED)
    assert selected == pair.unbounded.counted.value(Metric.PAGES_SELECTED)
    slots = pair.bounded.counted.value(Metric.FAST_SLOTS, state="total")
    assert slots == BOUNDED // PAGE_BYTES
    assert loaded_pages(pair.bounded) > slots
    assert loaded_pages(pair.bounded) > loaded_pages(pair.unbounded)
    assert pair.bounded.counted.value(Metric.FAST_SLOTS, state="used") <= slots


def test_a_bounded_tier_has_less_of_what_is_selected(pair: Pair) -> None:
    hit = [
        run.counted.value(Metric.PAGES_RESIDENT) / run.counted.value(Metric.PAGES_SELECTED)
        for run in (pair.bounded, pair.unbounded)
    ]
    assert 0.5 < hit[0] < hit[1] <= 1


def test_a_small_budget_recalls_a_part_of_the_mass(pair: Pair) -> None:
    assert pair.bounded.counted.value(f"{Metric.MASS_RECALL}_count") >= 8
    assert 0.3 < pair.bounded.counted.mean(Metric.MASS_RECALL) < 0.9999
    assert 0 < pair.bounded.counted.mean(Metric.OUTPUT_ERROR) < 1
