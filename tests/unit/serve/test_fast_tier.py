"""A fast tier that is too small is refused before the model loads, with the size that is enough."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasis_runtime.contract import EngineConfig
from oasis_runtime.serve.fast_tier import fast_tier_problem
from oasis_runtime.serve.model_folder import ModelShape

SHAPE = ModelShape(head_dim=64, element_bytes=2, layers=30, kv_heads=3)


def config(**settings: Any) -> EngineConfig:
    tiers = {
        "host_bytes": settings.pop("host_bytes", 1 << 30),
        "fast_bytes": settings.pop("fast_bytes", 1 << 20),
    }
    return EngineConfig.model_validate({"model": "/models/x", "tiers": tiers, **settings})


@given(
    budget=st.integers(64, 8192),
    requests=st.integers(1, 64),
    role=st.sampled_from(["both", "decode"]),
    kv_heads=st.integers(1, 16),
)
def test_the_size_that_the_sentence_names_is_just_enough(
    budget: int, requests: int, role: str, kv_heads: int
) -> None:
    shape = ModelShape(head_dim=64, element_bytes=2, layers=30, kv_heads=kv_heads)
    settings: dict[str, Any] = {
        "role": role,
        "max_num_seqs": requests,
        "selection": {"budget_tokens": budget},
    }
    sentence = fast_tier_problem(config(**settings), shape)
    assert sentence is not None
    enough = re.search(r"select (\d+) bytes", sentence)
    assert enough
    for size, refused in ((int(enough[1]), False), (int(enough[1]) - 1, True)):
        judged = config(host_bytes=max(1 << 30, size), fast_bytes=size, **settings)
        assert (fast_tier_problem(judged, shape) is not None) is refused


def test_only_a_decode_engine_needs_room_for_all_of_its_requests() -> None:
    enough_for_one = 40 << 20
    settings = {"max_num_seqs": 8, "selection": {"budget_tokens": 512}}
    whole = config(fast_bytes=enough_for_one, **settings)
    assert fast_tier_problem(whole, SHAPE) is None
    decode = config(fast_bytes=enough_for_one, role="decode", **settings)
    assert "8 request(s) of 512 tokens" in str(fast_tier_problem(decode, SHAPE))


@pytest.mark.parametrize(
    "settings",
    [{"role": "prefill"}, {"selection": {"mode": "dense"}}, {"extra_args": ["--kv-cache-dtype=x"]}],
    ids=str,
)
def test_nothing_is_asked_of_an_engine_that_selects_nothing_or_other_pages(
    settings: dict[str, Any],
) -> None:
    assert fast_tier_problem(config(**settings), SHAPE) is None


@pytest.mark.parametrize(
    "shape", [None, ModelShape(64, 2), ModelShape(64, 2, layers=30), ModelShape(64, 2, kv_heads=3)]
)
def test_a_model_whose_sizes_are_unknown_is_left_to_the_engine(shape: ModelShape | None) -> None:
    assert fast_tier_problem(config(), shape) is None
