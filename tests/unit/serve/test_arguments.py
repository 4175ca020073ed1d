"""The arguments for vLLM's server, and that vLLM itself takes them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from oasis_runtime.contract import (
    DRAIN_MARGIN_SECONDS,
    EngineConfig,
    PredictionConfig,
    Role,
    TransferConfig,
)
from oasis_runtime.serve.arguments import argument_problems, drain_seconds, server_arguments
from oasis_runtime.serve.payload import PAYLOAD_KEY, EnginePayload
from tests.unit.serve.payloads import payload


def value(arguments: list[str], flag: str) -> str:
    return arguments[arguments.index(flag) + 1]


def transfer(**settings: Any) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(
        value(server_arguments(payload(**settings)), "--kv-transfer-config")
    )
    return result


def test_the_host_tier_is_vllms_own_cache() -> None:
    arguments = server_arguments(payload(tiers={"host_bytes": 1 << 30, "block_tokens": 64}))
    assert value(arguments, "--kv-cache-memory-bytes") == str(1 << 30)
    assert value(arguments, "--block-size") == "64"


def test_model_name_length_and_limits_are_passed_on() -> None:
    arguments = server_arguments(
        payload(
            served_model_name="smol",
            dtype="bfloat16",
            max_model_len=8192,
            max_num_seqs=3,
            port=9000,
        )
    )
    assert value(arguments, "--model") == "/models/x"
    assert value(arguments, "--served-model-name") == "smol"
    assert value(arguments, "--dtype") == "bfloat16"
    assert value(arguments, "--max-model-len") == "8192"
    assert value(arguments, "--max-num-seqs") == "3"
    assert value(arguments, "--port") == "9000"


def test_what_is_not_set_is_left_to_vllm() -> None:
    arguments = server_arguments(payload())
    assert "--served-model-name" not in arguments
    assert "--max-model-len" not in arguments


@pytest.mark.parametrize(
    ("role", "kv_role"),
    [("both", "kv_both"), ("prefill", "kv_producer"), ("decode", "kv_consumer")],
)
def test_the_role_decides_the_direction_of_the_connector(role: str, kv_role: str) -> None:
    assert transfer(role=role)["kv_role"] == kv_role


def test_a_failed_load_is_recomputed() -> None:
    assert transfer()["kv_load_failure_policy"] == "recompute"


def test_the_payload_comes_back_whole_from_the_connectors_config() -> None:
    sent = payload(role="decode", selection={"budget_tokens": 1024}, extra_args=["--seed", "1"])
    arguments = server_arguments(sent)
    extra = json.loads(value(arguments, "--kv-transfer-config"))["kv_connector_extra_config"]
    assert EnginePayload.model_validate(extra[PAYLOAD_KEY]) == sent


def test_ngram_prediction_rides_one_draft_token() -> None:
    arguments = server_arguments(payload(prediction={"ngram_min": 3, "ngram_max": 5}))
    assert json.loads(value(arguments, "--speculative-config")) == {
        "method": "ngram",
        "num_speculative_tokens": 1,
        "prompt_lookup_min": 3,
        "prompt_lookup_max": 5,
    }


HEADS = {"draft_heads": "eagle", "draft_model": "/heads", "draft_tokens": 3}


@pytest.mark.parametrize("method", ["draft", "auto"])
def test_draft_heads_are_vllms_and_wait_for_what_was_accepted(method: str) -> None:
    arguments = server_arguments(payload(prediction={"method": method, **HEADS}))
    assert json.loads(value(arguments, "--speculative-config")) == {
        "method": "eagle",
        "model": "/heads",
        "num_speculative_tokens": 3,
        "disable_padded_drafter_batch": True,
    }


def test_heads_on_the_hub_are_those_of_their_revision() -> None:
    arguments = server_arguments(
        payload(prediction={"method": "draft", **HEADS, "draft_revision": "r"})
    )
    assert json.loads(value(arguments, "--speculative-config"))["revision"] == "r"


def test_heads_that_are_part_of_the_model_have_no_folder() -> None:
    arguments = server_arguments(payload(prediction={"method": "draft", "draft_heads": "mtp"}))
    sent = json.loads(value(arguments, "--speculative-config"))
    assert (sent["method"], "model" in sent) == ("mtp", False)


def test_without_heads_auto_drafts_by_ngrams() -> None:
    arguments = server_arguments(payload(prediction={"method": "auto"}))
    assert json.loads(value(arguments, "--speculative-config"))["method"] == "ngram"


@pytest.mark.parametrize(
    ("role", "method", "count"),
    [("decode", "draft", 1), ("decode", "auto", 1), ("decode", "ngram", 0), ("both", "draft", 0)],
)
def test_heads_do_not_go_with_prompts_of_a_peer(role: str, method: str, count: int) -> None:
    config = payload(role=role, prediction={"method": method, **HEADS}).config
    assert len(argument_problems(config)) == count


@pytest.mark.parametrize(
    ("prediction", "sentence"),
    [
        ({"method": "draft"}, "method draft needs prediction.draft_heads"),
        ({"draft_heads": "eagle"}, "draft_heads eagle needs prediction.draft_model"),
        ({"draft_heads": "mtp", "draft_model": "/x"}, "draft_model is of EAGLE heads"),
        ({"draft_model": "/x"}, "draft_model is of EAGLE heads"),
        ({"draft_tokens": 17}, "less than or equal to 16"),
    ],
)
def test_settings_of_drafts_that_do_not_go_together_are_refused(
    prediction: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        PredictionConfig.model_validate(prediction)


@pytest.mark.parametrize(
    "settings",
    [
        {"role": "prefill"},
        {"prediction": {"method": "ema"}},
        {"prediction": {"method": "previous"}},
    ],
    ids=str,
)
def test_nothing_is_drafted_where_nothing_is_predicted(settings: dict[str, Any]) -> None:
    assert "--speculative-config" not in server_arguments(payload(**settings))


def test_extra_arguments_come_last_so_that_they_win() -> None:
    arguments = server_arguments(payload(extra_args=["--seed", "1"]))
    assert arguments[-2:] == ["--seed", "1"]


@pytest.mark.parametrize("lease", [1.0, 30.0, 47.5])
def test_a_drain_outlives_a_lease_and_ends_within_the_grace_period(lease: float) -> None:
    transfer_config = TransferConfig(lease_seconds=lease, heartbeat_seconds=lease / 4)
    config = EngineConfig(model="m", transfer=transfer_config)
    assert lease < drain_seconds(config) < math.ceil(lease) + DRAIN_MARGIN_SECONDS


@pytest.mark.parametrize(("tokens", "count"), [(16, 1), (32, 0), (64, 0), (128, 0)])
def test_blocks_that_the_cpu_kernel_cannot_take_are_refused(tokens: int, count: int) -> None:
    config = payload(tiers={"block_tokens": tokens}).config
    assert len(argument_problems(config)) == count


@pytest.mark.parametrize("role", list(Role))
def test_vllms_own_parser_takes_the_arguments(role: Role) -> None:
    """Names and values are vLLM 0.32's, as its own command line parser reads them."""
    cli_args = pytest.importorskip("vllm.entrypoints.launchers.cli_args")
    argparse_utils = pytest.importorskip("vllm.utils.argparse_utils")
    sent = payload(role=role, served_model_name="smol", max_model_len=8192)
    parser = cli_args.make_arg_parser(argparse_utils.FlexibleArgumentParser())
    parsed = parser.parse_args(server_arguments(sent))
    assert parsed.model == "/models/x"
    assert parsed.served_model_name == ["smol"]
    assert parsed.kv_cache_memory_bytes == sent.config.tiers.host_bytes
    assert parsed.block_size == sent.config.tiers.block_tokens
    assert parsed.worker_cls == "oasis_runtime.vllm.worker.OasisCPUWorker"
    assert parsed.middleware == ["oasis_runtime.serve.validation.RequestValidation"]
    assert parsed.kv_transfer_config.kv_connector_module_path == "oasis_runtime.vllm.connector"
    assert parsed.shutdown_timeout == drain_seconds(sent.config)
    assert parsed.enforce_eager
    assert parsed.enable_chunked_prefill
    assert parsed.enable_prefix_caching
    assert (parsed.nnodes, parsed.headless) == (1, False)
    others = payload(tensor_parallel_size=4, nodes={"count": 2, "rank": 1, "leader": "large-0"})
    parsed = parser.parse_args(server_arguments(others))
    assert (parsed.nnodes, parsed.node_rank, parsed.master_addr) == (2, 1, "large-0")
    assert parsed.headless


def test_an_engine_on_one_node_says_nothing_of_nodes() -> None:
    assert not {"--nnodes", "--headless"} & set(server_arguments(payload(tensor_parallel_size=2)))


@pytest.mark.parametrize("rank", [0, 1])
def test_of_an_engine_on_several_nodes_the_first_serves(rank: int) -> None:
    nodes = {"count": 2, "rank": rank, "leader": "large-0.large"}
    arguments = server_arguments(payload(tensor_parallel_size=4, nodes=nodes))
    assert value(arguments, "--nnodes") == "2"
    assert value(arguments, "--node-rank") == str(rank)
    assert value(arguments, "--master-addr") == "large-0.large"
    assert value(arguments, "--distributed-executor-backend") == "mp"
    assert ("--headless" in arguments) == (rank > 0)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"nodes": {"count": 2, "rank": 2}}, "nodes.rank must be under nodes.count"),
        ({"nodes": {"count": 2}, "tensor_parallel_size": 3}, "must divide tensor_parallel_size"),
        (
            {"nodes": {"count": 2}, "tensor_parallel_size": 2, "role": "decode"},
            "over 1 needs role both",
        ),
    ],
)
def test_nodes_that_make_no_engine_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        EngineConfig(model="m", **settings)
