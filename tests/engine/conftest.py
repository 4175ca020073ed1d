"""The model, its prompts and the answers of stock vLLM, once for all tests here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from oasis_runtime.contract import TierConfig
from testbed import model as models
from tests.engine.configs import engine_config
from tests.engine.inprocess.child import Setup
from tests.engine.prompts import Prose
from tests.engine.stock import Stock


@pytest.fixture(scope="session")
def model() -> Path:
    return Path(os.environ.get("OASISKV_MODEL") or models.make())


@pytest.fixture(scope="session")
def prose(model: Path) -> Prose:
    return Prose.of(model)


@pytest.fixture(scope="session")
def stock(model: Path) -> Iterator[Stock]:
    """Plain vLLM without any of our code in its path."""
    made = Stock(Setup(engine_config(model, tiers=TierConfig(host_bytes=1 << 30)), stock=True))
    yield made
    made.close()
