"""kv_transfer_params as stock routers and vLLM's own connector send them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from oasis_runtime.serve.transfer_params import TransferParams

TO_PREFILL: dict[str, Any] = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
"""As vllm-router 0.1.17 sends it."""

TO_DECODE: dict[str, Any] = {
    "do_remote_prefill": True,
    "do_remote_decode": False,
    "remote_block_ids": [[4, 5, 6]],
    "remote_engine_id": "0b8e6a2e-engine",
    "remote_request_id": "chatcmpl-1",
    "remote_host": "10.1.2.3",
    "remote_port": 8600,
    "remote_num_tokens": 96,
    "tp_size": 1,
    "oasis": {"version": 1, "generation": 7},
}


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in TO_DECODE.items() if key != name}


def test_the_routers_request_to_prefill_is_valid() -> None:
    assert TransferParams.model_validate(TO_PREFILL).do_remote_decode


def test_what_prefill_returned_is_valid_for_decode() -> None:
    params = TransferParams.model_validate(TO_DECODE)
    assert params.remote_block_ids == [[4, 5, 6]]
    assert params.oasis is not None
    assert params.oasis.generation == 7


def test_it_survives_the_way_through_json() -> None:
    params = TransferParams.model_validate(TO_DECODE)
    assert TransferParams.model_validate_json(params.model_dump_json()) == params


def test_an_export_of_another_connector_is_valid_and_recognisable() -> None:
    stock = {
        **without("oasis"),
        "dcp_size": 1,
        "pp_size": 1,
        "remote_blocks_expiry_time": None,
        "transfer_mode": "pull",
    }
    assert TransferParams.model_validate(stock).oasis is None


def test_both_directions_at_once_are_refused() -> None:
    with pytest.raises(ValidationError, match="both true"):
        TransferParams.model_validate({**TO_DECODE, "do_remote_decode": True})


@pytest.mark.parametrize(
    "name",
    ["remote_engine_id", "remote_request_id", "remote_host", "remote_port", "remote_block_ids"],
)
def test_decode_needs_to_know_where_the_kv_is(name: str) -> None:
    with pytest.raises(ValidationError, match=f"without {name}"):
        TransferParams.model_validate(without(name))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("do_remote_prefill", "true"),
        ("do_remote_prefill", 1),
        ("remote_port", "8600"),
        ("remote_port", 0),
        ("remote_port", 65536),
        ("remote_port", True),
        ("remote_host", ""),
        ("remote_host", "h" * 300),
        ("remote_host", ["10.0.0.1"]),
        ("remote_engine_id", 7),
        ("remote_block_ids", [1, 2]),
        ("remote_block_ids", [[-1]]),
        ("remote_block_ids", [[1 << 31]]),
        ("remote_block_ids", [[1.5]]),
        ("remote_block_ids", "[[1]]"),
        ("tp_size", 0),
        ("remote_num_tokens", -1),
        ("oasis", 3),
        ("oasis", {"version": 1}),
        ("oasis", {"version": "1", "generation": 0}),
        ("oasis", {"version": 1, "generation": -1}),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_and_not_coerced(name: str, wrong: object) -> None:
    with pytest.raises(ValidationError) as caught:
        TransferParams.model_validate({**TO_DECODE, name: wrong})
    assert caught.value.errors()[0]["loc"][0] == name
