"""The core serves a model with numpy, torch and pydantic alone: no vLLM, no NIXL, nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

CHILD = "tests.unit.core.plain_decode"


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """Answers of a process in which no serving framework can be imported."""
    command = [sys.executable, "-m", CHILD]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-3000:]
    answers: dict[str, Any] = json.loads(run.stdout)
    return answers


def test_nothing_but_core_kernels_and_contract_is_loaded(found: dict[str, Any]) -> None:
    assert {name.split(".")[1] for name in found["modules"]} == {"contract", "core", "kernels"}


def test_a_budget_over_the_context_gives_the_dense_answer(found: dict[str, Any]) -> None:
    assert found["enough"] == found["dense"]
    assert len(set(found["dense"])) > 12, "an answer that repeats itself shows little"


def test_wrong_drafts_do_not_change_the_dense_answer(found: dict[str, Any]) -> None:
    assert found["drafted"] == found["dense"]


def test_a_bounded_fast_tier_gives_the_answer_of_an_unbounded_one(found: dict[str, Any]) -> None:
    assert found["bounded"] == found["unbounded"] != found["dense"]
    assert found["bounded loads"] > found["unbounded loads"] > 0


def test_requests_of_one_step_do_not_see_each_other(found: dict[str, Any]) -> None:
    assert found["together"] == found["alone"]


def test_reference_kernels_give_the_answer_of_the_cpu_kernels(found: dict[str, Any]) -> None:
    assert found["reference"] == found["short"]
