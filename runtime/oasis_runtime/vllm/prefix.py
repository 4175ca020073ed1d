"""Prefix caching next to sparse decode: approximate KV is found by those who accept it.

Keys and values of a token that was decoded sparsely are approximate in all layers but the first,
and so are those of whatever was computed on top of them. Their blocks enter vLLM's prefix cache
under a salted key, one for each budget: the next turn of a conversation goes on with the KV that a
longer answer would have gone on with, while a dense request, or one of another budget, never
builds on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Self, cast

import torch
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import BlockHash, BlockHashList, KVCacheBlock, get_group_id
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager
from vllm.v1.kv_cache_interface import AttentionSpec, FullAttentionSpec, KVCacheSpec
from vllm.v1.kv_cache_spec_registry import KVCacheSpecRegistry
from vllm.v1.request import Request

from oasis_runtime.contract import SelectionConfig
from oasis_runtime.core.budget import Budget
from oasis_runtime.vllm.options import request_options

PARTIAL = "oasis_partial"
"""Set in a request's ``kv_transfer_params`` while pages of it are still with its prefill engine."""


_APPROXIMATE = 1 << 16
"""Added to a budget, in blocks, to give the group that vLLM hashes approximate blocks under. Its
own groups are numbered from 0 and are few."""


class SaltedHashes(list[BlockHash]):
    """Block hashes of a request. ``salt``: the group of the approximate blocks that it may build
    on, None for one that wants exact KV."""

    def __init__(self, hashes: Iterable[BlockHash], salt: int | None) -> None:
        super().__init__(hashes)
        self.salt = salt


def salt(request: Request, selection: SelectionConfig, block: int) -> int | None:
    """See :class:`SaltedHashes`."""
    budget = Budget.of(selection, request_options(request.sampling_params), block)
    return None if budget.mode == "dense" else _APPROXIMATE + budget.selected


def _salt_of(hashes: BlockHashList) -> int | None:
    """What the connector gave a new request's hashes."""
    return hashes.salt if isinstance(hashes, SaltedHashes) else None


class _Lookup:
    """What a search for a cached prefix asks of vLLM's block pool: exact blocks as long as there
    are any, approximate ones from there on."""

    def __init__(self, pool: BlockPool, salt: int | None) -> None:
        self._pool = pool
        self._salt = salt
        self._exact = True
        self.hash_block_size = pool.hash_block_size

    def get_cached_block(
        self, block_hash: BlockHash, groups: list[int]
    ) -> list[KVCacheBlock] | None:
        if self._exact and (found := self._pool.get_cached_block(block_hash, groups)):
            return found
        if self._salt is None:
            return None
        self._exact = False
        return self._pool.get_cached_block(block_hash, [self._salt] * len(groups))


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
    @classmethod
    def find_longest_cache_hit(
        cls,
        block_hashes: BlockHashList,
        max_length: int,
        kv_cache_group_ids: list[int],
        block_pool: BlockPool,
        kv_cache_spec: KVCacheSpec,
        drop_eagle_block: bool,
        alignment_tokens: int,
        dcp_world_size: int = 1,
        pcp_world_size: int = 1,
    ) -> tuple[tuple[list[KVCacheBlock], ...], int]:
        return super().find_longest_cache_hit(
            block_hashes,
            max_length,
            kv_cache_group_ids,
            cast(BlockPool, _Lookup(block_pool, _salt_of(block_hashes))),
            kv_cache_spec,
            drop_eagle_block,
            alignment_tokens,
            dcp_world_size,
            pcp_world_size,
        )

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
        exact = exact_tokens(request, spec.selection, spec.block_size)
        if not self._approximate(request.request_id):
            super().cache_blocks(
                request,
                min(num_tokens, exact),
                retention_interval,
                replay_boundaries=replay_boundaries,
            )
        group = _salt_of(request.block_hashes)
        if exact == 0 or group is None:
            return
        done = self.num_cached_block.get(request.request_id, 0)
        full = num_tokens // self.block_size
        if full > done:
            self.block_pool.cache_full_blocks(
                request=request,
                blocks=self.req_to_blocks[request.request_id],
                num_cached_blocks=done,
                num_full_blocks=full,
                block_size=self.block_size,
                kv_cache_group_id=group,
            )
            self.num_cached_block[request.request_id] = full

    def _approximate(self, request_id: str) -> bool:
        """Whether the cached blocks of the request end with an approximate one."""
        done = self.num_cached_block.get(request_id, 0)
        key = self.req_to_blocks[request_id][done - 1].block_hash if done else None
        return key is not None and get_group_id(key) >= _APPROXIMATE


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
