"""Which functions of vLLM and ours belong to which part of a decode step, wrapped from outside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from vllm import _custom_ops
from vllm.model_executor.layers.linear import LinearBase
from vllm.v1.attention.backends.cpu_attn import (
    CPUAttentionBackendImpl,
    CPUAttentionMetadataBuilder,
)
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from bench.turns.stopwatch import Part, Stopwatch
from oasis_runtime.core.engine import SparseEngine
from oasis_runtime.vllm.audit import Auditor
from oasis_runtime.vllm.backend import OasisAttentionImpl, OasisMetadataBuilder
from oasis_runtime.vllm.connector import OasisConnector
from oasis_runtime.vllm.session import Session


def _wrapped(model: torch.nn.Module) -> Iterator[tuple[Any, str, Part]]:
    """Owner and name of each function, and its part."""
    yield model, "forward", Part.MODEL
    yield model, "compute_logits", Part.SAMPLING
    for module in model.modules():
        if isinstance(module, LinearBase):
            yield module, "forward", Part.WEIGHTS
    yield GPUModelRunner, "sample_tokens", Part.SAMPLING
    for kernel in (
        "cpu_attention_with_kv_cache",
        "cpu_attn_get_scheduler_metadata",
        "cpu_attn_reshape_and_cache",
    ):
        yield _custom_ops, kernel, Part.ATTENTION
    yield CPUAttentionMetadataBuilder, "build", Part.REST
    for method in ("forward", "do_kv_cache_update"):
        yield CPUAttentionBackendImpl, method, Part.ATTENTION
    yield SparseEngine, "select", Part.SELECTION
    yield OasisAttentionImpl, "forward", Part.TABLES
    yield OasisAttentionImpl, "do_kv_cache_update", Part.SUMMARIES
    yield OasisMetadataBuilder, "build", Part.BEGIN_END
    yield Session, "end_step", Part.BEGIN_END
    for method in ("before_step", "get_kv_connector_stats"):
        yield OasisConnector, method, Part.BEGIN_END
    for method in ("begin_step", "observe"):
        yield Auditor, method, Part.AUDIT


@contextmanager
def taken_apart(model: torch.nn.Module) -> Iterator[Stopwatch]:
    """What this thread does meanwhile; ``model``: that of the process's one engine."""
    watch = Stopwatch()
    with ExitStack() as stack:
        for owner, name, part in _wrapped(model):
            stack.enter_context(patch.object(owner, name, watch.timed(part, getattr(owner, name))))
        watch.start()
        yield watch
        watch.stop()
