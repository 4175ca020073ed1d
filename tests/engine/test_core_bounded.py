"""A fast tier that holds little more than what is selected, against one that holds everything."""

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
from tests.engine.configs import PAGE_BYTES, PAGES_A_BLOCK, engine_config
from tests.engine.inprocess.asks import Ask, Held
from tests.engine.inprocess.child import Setup
from tests.engine.inprocess.engine import EngineProcess, Run
from tests.engine.prompts import Prose

BUDGET = 512
MOST_BLOCKS = BUDGET // 32 + 2 + 4
"""Selection, sinks and window of one request."""
BOUNDED = (2 * MOST_BLOCKS + 2) * PAGES_A_BLOCK * PAGE_BYTES
UNBOUNDED = 400 << 20


def start(model: Path, fast_bytes: int) -> EngineProcess:
    config = engine_config(
        model,
        tiers=TierConfig(host_bytes=512 << 20, fast_bytes=fast_bytes),
        selection=SelectionConfig(mode="sparse", budget_tokens=BUDGET),
        prediction=PredictionConfig(method="previous"),
        prefetch=PrefetchConfig(cap=1.0, wait_ms=60000),
        audit=AuditConfig(every_steps=4),
    )
    return EngineProcess(Setup(config))


@pytest.fixture(scope="module")
def asks(prose: Prose) -> list[Ask]:
    return [Ask(prose.passage(i, 2300 - 200 * i), 40, after=i) for i in range(2)]


@pytest.fixture(scope="module")
def bounded(model: Path, asks: list[Ask]) -> Iterator[Run]:
    engine = start(model, BOUNDED)
    yield engine.run(*asks)
    assert engine.held() == Held(requests=0, host_blocks=0, tracked=0, arriving=0)
    engine.close()


@pytest.fixture(scope="module")
def unbounded(model: Path, asks: list[Ask]) -> Iterator[Run]:
    engine = start(model, UNBOUNDED)
    yield engine.run(*asks)
    engine.close()


def loaded_pages(run: Run) -> float:
    return run.counted.value(Metric.TIER_BYTES, source="host", target="fast") / PAGE_BYTES


def test_a_bounded_fast_tier_gives_the_answer_of_an_unbounded_one(
    bounded: Run, unbounded: Run
) -> None:
    assert bounded.tokens == unbounded.tokens
    for run in (bounded, unbounded):
        assert run.counted.value(Metric.PAGES_LATE) == 0
        assert run.counted.value(Metric.STEPS, mode="dense") == 0


def test_the_bounded_tier_evicted_and_loaded_again(bounded: Run, unbounded: Run) -> None:
    """Both selected the same pages; the unbounded tier loaded each at most once."""
    selected = bounded.counted.value(Metric.PAGES_SELECTED)
    assert selected == unbounded.counted.value(Metric.PAGES_SELECTED)
    slots = bounded.counted.value(Metric.FAST_SLOTS, state="total")
    assert slots == BOUNDED // PAGE_BYTES
    assert loaded_pages(bounded) > slots
    assert loaded_pages(bounded) > loaded_pages(unbounded)
    assert bounded.counted.value(Metric.FAST_SLOTS, state="used") <= slots


def test_a_bounded_tier_has_less_of_what_is_selected(bounded: Run, unbounded: Run) -> None:
    hit = [
        run.counted.value(Metric.PAGES_RESIDENT) / run.counted.value(Metric.PAGES_SELECTED)
        for run in (bounded, unbounded)
    ]
    assert 0.5 < hit[0] < hit[1] <= 1


def test_a_small_budget_recalls_a_part_of_the_mass(bounded: Run) -> None:
    assert bounded.counted.value(f"{Metric.MASS_RECALL}_count") >= 8
    assert 0.3 < bounded.counted.mean(Metric.MASS_RECALL) < 0.9999
    assert 0 < bounded.counted.mean(Metric.OUTPUT_ERROR) < 1
