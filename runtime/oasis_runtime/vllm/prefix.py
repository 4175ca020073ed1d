"""Prefix caching next to sparse decode: only exact KV may be found by its hash.

Keys and values of a token that was decoded sparsely are approximate in all layers but the first.
Their blocks are not entered into vLLM's prefix cache, so that a later request, which prefills
densely, never builds on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import torch
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager
from vllm.v1.kv_cache_interface import AttentionSpec, FullAttentionSpec
from vllm.v1.kv_cache_spec_registry import KVCacheSpecRegistry
from vllm.v1.request import Request

from oasis_runtime.contract import SelectionConfig
from oasis_runtime.core.budget import Budget
from oasis_runtime.vllm.options import request_options

PARTIAL = "oasis_partial"
"""Set in a request's ``kv_transfer_params`` while pages of it are still with its prefill engine."""


def exact_tokens(request: Request, selection: SelectionConfig, block: int) -> int:
    """Leading tokens of the request whose KV is what dense attention would have made."""
    if (request.kv_transfer_params or {}).get(PARTIAL):
        return 0
    budget = Budget.of(selection, request_options(request.sampling_params), block)
    return max(request.num_prompt_tokens, budget.dense_up_to)


@dataclass(frozen=True, kw_only=True)
class OasisAttentionSpec(FullAttentionSpec):
    """Full attention whose decoded tokens may be approximate; see the module."""

    selection: SelectionConfig

    @staticmethod
    def of(spec: AttentionSpec, selection: SelectionConfig) -> OasisAttentionSpec:
        values = {f.name: getattr(spec, f.name) for f in fields(spec) if f.init}
        return OasisAttentionSpec(**values, selection=selection)

    @classmethod
    def merge(cls, specs: list[Self]) -> Self:
        """As vLLM merges the specs of a group; all have the engine's one selection."""
        merged = FullAttentionSpec.merge(list(specs))
        values = {f.name: getattr(merged, f.name) for f in fields(merged) if f.init}
        return cls(**values, selection=specs[0].selection)


class OasisAttentionManager(FullAttentionManager):
    def cache_blocks(
        self,
        request: Request,
        num_tokens: int,
        retention_interval: int | None = None,
        *,
        replay_boundaries: Sequence[int],
    ) -> None:
        spec = self.kv_cache_spec
        assert isinstance(spec, OasisAttentionSpec)
        super().cache_blocks(
            request,
            min(num_tokens, exact_tokens(request, spec.selection, spec.block_size)),
            retention_interval,
            replay_boundaries=replay_boundaries,
        )


def register_spec() -> None:
    """Tell vLLM which manager serves the spec.

    The look-up comes first because it makes vLLM register its own specs, which it does only while
    the registry is empty.
    """
    some = FullAttentionSpec(block_size=32, num_kv_heads=1, head_size=64, dtype=torch.float32)
    KVCacheSpecRegistry.get_uniform_type_base_spec(some)
    KVCacheSpecRegistry.register(
        OasisAttentionSpec, OasisAttentionManager, uniform_type_base_spec=FullAttentionSpec
    )
