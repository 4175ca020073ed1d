"""One worker's engine and what binds it to vLLM's model runner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from vllm.config import VllmConfig
from vllm.model_executor.layers.attention import Attention
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackendImpl
from vllm.v1.worker.gpu_input_batch import InputBatch

from oasis_runtime.contract import EngineConfig, RequestOptions, Role
from oasis_runtime.core.budget import Budget, sparse_at_once
from oasis_runtime.core.drafting import draft_methods
from oasis_runtime.core.engine import SparseEngine, Step
from oasis_runtime.core.escalation import FACTOR
from oasis_runtime.core.geometry import Geometry, slots_for
from oasis_runtime.core.requests import StepRequest
from oasis_runtime.core.smoothing import WEIGHT
from oasis_runtime.core.tables import Tables
from oasis_runtime.kernels.cpu import CpuKernels
from oasis_runtime.vllm.layout import PageLayout
from oasis_runtime.vllm.written_keys import WrittenKeys


@dataclass(frozen=True)
class Tiers:
    """Layer tensors. ``host``: each [V, H, block, 2 * D], vLLM's own cache; ``fast``: one tensor
    [L, S, block, 2 * D]."""

    host: Sequence[torch.Tensor]
    fast: torch.Tensor


class Session:
    """What backend, worker and connector of one rank share."""

    def __init__(
        self, config: EngineConfig, engine: SparseEngine, tiers: Tiers, batch: InputBatch
    ) -> None:
        self.config = config
        self.engine = engine
        self.tiers = tiers
        self._batch = batch
        self._written: WrittenKeys | None = None
        self.step: Step | None = None

    def begin_step(self, lengths: Sequence[int], scheduled: Sequence[int]) -> Step:
        """Start the engine's step for the first ``len(lengths)`` requests of the input batch."""
        table = self._batch.block_table[0].get_numpy_array()
        requests = [
            StepRequest(
                request_id=self._batch.req_ids[i],
                blocks=table[i],
                computed=length - count,
                scheduled=count,
                prompt=int(self._batch.num_prompt_tokens[i]),
            )
            for i, (length, count) in enumerate(zip(lengths, scheduled, strict=True))
        ]
        self._written = None
        self.step = self.engine.begin_step(requests)
        return self.step

    def write(self, layer: int, key: torch.Tensor, mapping: torch.Tensor) -> None:
        """The host tier has the layer's keys [>= tokens, H, D] at vLLM's slots ``mapping``."""
        if self.step is None:
            return
        if self._written is None:
            self._written = WrittenKeys.of(self.step, key, mapping)
        self._written.add(self.engine, layer, key)

    def end_step(self) -> Mapping[str, np.ndarray]:
        """Finish the step if one was begun; returns the pages that requests want from peers."""
        if self.step is None:
            return {}
        if self._written is not None:
            self._written.finish(self.engine)
        self.step = self._written = None
        return self.engine.end_step()


def create(
    vllm_config: VllmConfig,
    config: EngineConfig,
    layers: Mapping[str, Attention],
    batch: InputBatch,
    layout: PageLayout,
) -> Session:
    """Build the engine over vLLM's cache tensors, whose pages have the given layout.

    Raises ValueError with the remedy when the model or the sizes cannot be served.
    """
    host = [layer.kv_cache for layer in layers.values()]
    first, attention = host[0], next(iter(layers.values()))
    for name, layer in layers.items():
        impl = layer.impl
        if not isinstance(impl, CPUAttentionBackendImpl):
            raise ValueError(f"layer {name} uses another attention ({type(impl).__name__})")
        if layer.kv_cache.shape != first.shape or not layer.kv_cache.is_contiguous():
            raise ValueError(
                f"layer {name} has a KV cache of another shape: OasisKV serves models whose layers "
                "all use full attention of one size"
            )
        if impl.alibi_slopes is not None or impl.sinks is not None or impl.sliding_window != -1:
            raise ValueError(
                f"layer {name} uses ALiBi, attention sinks or a sliding window, which OasisKV does "
                "not serve; run this model with plain vLLM"
            )
    blocks, heads, block, both = first.shape
    page_bytes = block * both * first.element_size()
    slots = slots_for(config.tiers.fast_bytes, len(host), page_bytes)
    geometry = Geometry(
        layers=len(host),
        heads=heads,
        group=attention.num_heads // heads,
        dim=both // 2,
        block=block,
        element_bytes=first.element_size(),
        host_blocks=blocks,
        slots=slots,
    )
    budget = Budget.of(config.selection, RequestOptions(), block)
    longest = vllm_config.model_config.max_model_len
    at_once = sparse_at_once(config, vllm_config.scheduler_config.max_num_seqs)
    needed = at_once * budget.most_blocks(longest) * heads
    if slots < needed:
        raise ValueError(
            f"tiers.fast_bytes holds {slots} pages a layer, {at_once} request(s) at this budget "
            f"need {needed}: raise it to {needed * len(host) * page_bytes}, or lower "
            "selection.budget_tokens or max_num_seqs"
        )
    escalates = config.selection.escalate and config.role is not Role.PREFILL
    lanes = 2 * vllm_config.scheduler_config.max_num_seqs
    # Written here, or the first steps of a server would wait for each page that they touch first.
    fast = torch.empty((len(host), slots, block, both), dtype=first.dtype).zero_()
    tables = Tables.create(
        geometry,
        np.array([t.data_ptr() for t in host], np.uint64),
        fast.view(torch.uint8).numpy().reshape(len(host), slots, page_bytes),
        lanes=lanes,
        max_selected=budget.selected_at(longest) * (FACTOR if escalates else 1),
        elements=torch.cat([layout.keys, layout.values], dim=1).int().numpy(),
    )
    engine = SparseEngine(
        tables,
        CpuKernels(tables),
        config.selection,
        config.prefetch,
        decodes=config.role is not Role.PREFILL,
        draft_methods=draft_methods(config.prediction),
        query_weight=1.0 if config.prediction.method == "previous" else WEIGHT,
    )
    return Session(config, engine, Tiers(host, fast), batch)
