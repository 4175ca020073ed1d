"""Attention backend: vLLM's CPU attention, fed from the fast tier where a request is sparse.

Keys and values are always written to the host tier, which is vLLM's own cache. A sparse request's
rows go to the same kernel as one request per KV head, each with its own block table over slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from vllm import _custom_ops as ops
from vllm import envs
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.attention.backends.cpu_attn import (
    CPUAttentionBackend,
    CPUAttentionBackendImpl,
    CPUAttentionMetadata,
    CPUAttentionMetadataBuilder,
)

from oasis_runtime.kernels.contract import F32, I32
from oasis_runtime.vllm.audit import Auditor
from oasis_runtime.vllm.session import Session


@dataclass(frozen=True)
class SchedulingArguments:
    """What vLLM's kernel wants to plan a call, apart from lengths."""

    head_dim: int
    dtype: torch.dtype
    isa: str
    kv_cache_dtype: str
    window: int

    def plan(
        self, starts: torch.Tensor, lengths: torch.Tensor, heads: int, kv_heads: int
    ) -> torch.Tensor:
        plan: torch.Tensor = ops.cpu_attn_get_scheduler_metadata(
            num_reqs=len(lengths),
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=self.head_dim,
            seq_lens=lengths,
            dtype=self.dtype,
            query_start_loc=starts,
            causal=True,
            sliding_window_size=self.window,
            isa=self.isa,
            enable_kv_split=envs.VLLM_CPU_ATTN_SPLIT_KV,
            kv_cache_dtype=self.kv_cache_dtype,
        )
        return plan


@dataclass(frozen=True)
class Picked:
    """Some rows of a tensor's first dimension. ``index``: int64, or None where they are the first
    ``count`` in their order, which most steps of most servers are: nothing is copied then."""

    count: int
    index: torch.Tensor | None

    @staticmethod
    def of(rows: npt.NDArray[np.int64]) -> Picked:
        in_order = np.array_equal(rows, np.arange(len(rows)))
        return Picked(len(rows), None if in_order else torch.from_numpy(rows))

    def take(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor[: self.count] if self.index is None else tensor[self.index]


@dataclass
class SparseRows:
    """Sparse requests of a step. ``rows``: of the query viewed as [tokens * KV heads, group, D],
    ordered by request, head, token; ``starts``: int32 [n * H + 1]."""

    rows: Picked
    starts: torch.Tensor
    planned_for: bytes = b""
    plan: torch.Tensor | None = None
    table: I32 | None = None
    tensors: tuple[torch.Tensor, torch.Tensor] | None = None

    def of_layer(self, table: I32, lengths: I32) -> tuple[torch.Tensor, torch.Tensor]:
        """Block tables and lengths as tensors of the same memory, which layers share."""
        if self.tensors is None or self.table is not table:
            self.table = table
            self.tensors = torch.from_numpy(table), torch.from_numpy(lengths)
        return self.tensors


@dataclass(frozen=True)
class SelectingRows:
    """``rows``: the token of each selecting request whose query chooses. ``queries``: room for
    those of a layer, float32 [n, H, G, D]; ``heads`` is the same memory as [n, H * G, D]."""

    rows: Picked
    heads: torch.Tensor
    queries: F32

    @staticmethod
    def of(tokens: npt.NDArray[np.int64], kv_heads: int, group: int, dim: int) -> SelectingRows:
        room = torch.empty(len(tokens), kv_heads, group, dim)
        return SelectingRows(Picked.of(tokens), room.flatten(1, 2), room.numpy())

    def fill(self, query: torch.Tensor) -> F32:
        """From the query [tokens, H * G, D] of all requests."""
        self.heads.copy_(self.rows.take(query))
        return self.queries


@dataclass(frozen=True)
class DenseRows:
    """Dense requests of a step that has sparse ones too: a batch of its own over the host tier."""

    tokens: torch.Tensor
    starts: torch.Tensor
    lengths: torch.Tensor
    table: torch.Tensor
    plan: torch.Tensor


@dataclass
class OasisMetadata(CPUAttentionMetadata):
    sparse: SparseRows | None = None
    dense: DenseRows | None = None
    selecting: SelectingRows | None = None
    arguments: SchedulingArguments | None = field(default=None)


class OasisAttentionBackend(CPUAttentionBackend):
    @staticmethod
    def get_impl_cls() -> type[OasisAttentionImpl]:
        return OasisAttentionImpl

    @staticmethod
    def get_builder_cls() -> type[OasisMetadataBuilder]:
        return OasisMetadataBuilder


def _tokens_of(starts: np.ndarray, members: Sequence[int]) -> npt.NDArray[np.int64]:
    parts = [np.arange(starts[i], starts[i + 1], dtype=np.int64) for i in members]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


class OasisMetadataBuilder(CPUAttentionMetadataBuilder):
    _session: Session | None = None
    _auditor: Auditor | None = None

    def bind(self, session: Session, auditor: Auditor) -> None:
        """From now on requests may be served sparsely."""
        self._session, self._auditor = session, auditor

    def build(
        self,
        common_prefix_len: int,
        common_attn_metadata: CommonAttentionMetadata,
        fast_build: bool = False,
    ) -> CPUAttentionMetadata:
        metadata = super().build(common_prefix_len, common_attn_metadata, fast_build)
        if self._session is None:
            return metadata
        return self._serve(self._session, metadata, common_attn_metadata)

    def _serve(
        self, session: Session, metadata: CPUAttentionMetadata, common: CommonAttentionMetadata
    ) -> OasisMetadata:
        starts = common.query_start_loc_cpu.numpy()[: common.num_reqs + 1]
        lengths = metadata.seq_lens[: common.num_reqs].numpy()
        scheduled = np.diff(starts)
        step = session.begin_step(lengths.tolist(), scheduled.tolist())
        if self._auditor is not None:
            self._auditor.begin_step(step)
        assert isinstance(self.dtype, torch.dtype)
        arguments = SchedulingArguments(
            self.head_dim, self.dtype, self.isa, self.kv_cache_dtype, self.window_size
        )
        values: dict[str, Any] = {name: getattr(metadata, name) for name in vars(metadata)}
        return OasisMetadata(
            **values,
            sparse=self._sparse_rows(starts, step.sparse) if step.sparse else None,
            dense=self._dense_rows(metadata, starts, step.dense, arguments)
            if step.sparse and step.dense
            else None,
            selecting=self._selecting_rows(starts, step.selecting) if step.selecting else None,
            arguments=arguments,
        )

    def _sparse_rows(self, starts: np.ndarray, members: Sequence[int]) -> SparseRows:
        heads = self.num_kv_heads
        gather, counts = [], []
        for i in members:
            tokens = np.arange(starts[i], starts[i + 1], dtype=np.int64)
            gather.append((tokens[None, :] * heads + np.arange(heads)[:, None]).reshape(-1))
            counts += [len(tokens)] * heads
        ends = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=ends[1:])
        return SparseRows(Picked.of(np.concatenate(gather)), torch.from_numpy(ends))

    def _selecting_rows(self, starts: np.ndarray, members: Sequence[int]) -> SelectingRows:
        last = starts[np.array(members) + 1].astype(np.int64) - 1
        group = self.num_heads // self.num_kv_heads
        return SelectingRows.of(last, self.num_kv_heads, group, self.head_dim)

    def _dense_rows(
        self,
        metadata: CPUAttentionMetadata,
        starts: np.ndarray,
        members: Sequence[int],
        arguments: SchedulingArguments,
    ) -> DenseRows:
        chosen = torch.tensor(members)
        ends = np.zeros(len(members) + 1, np.int32)
        np.cumsum([starts[i + 1] - starts[i] for i in members], out=ends[1:])
        begin, lengths = torch.from_numpy(ends), metadata.seq_lens[chosen]
        return DenseRows(
            tokens=torch.from_numpy(_tokens_of(starts, members)),
            starts=begin,
            lengths=lengths,
            table=metadata.block_table[chosen],
            plan=arguments.plan(begin, lengths, self.num_heads, self.num_kv_heads),
        )


class OasisAttentionImpl(CPUAttentionBackendImpl):
    _session: Session | None = None
    _layer: int = 0
    _auditor: Auditor | None = None
    _fast: tuple[torch.Tensor, torch.Tensor]
    """The layer's keys and values in the fast tier, each [S, 1, block, D], as vLLM's kernels
    take them: every page is a block of one KV head."""

    def bind(self, session: Session, layer: int, auditor: Auditor) -> None:
        """Serve layer number ``layer`` through the session's engine."""
        self._session, self._layer, self._auditor = session, layer, auditor
        slots = session.tiers.fast[layer]
        pages = slots.view(slots.shape[0], 1, 2 * slots.shape[1], self.head_size)
        keys, values = pages.chunk(2, dim=2)
        self._fast = keys, values

    def do_kv_cache_update(
        self,
        layer: torch.nn.Module,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> None:
        super().do_kv_cache_update(layer, key, value, kv_cache, slot_mapping)
        if self._session is not None:
            self._session.write(self._layer, key, slot_mapping)

    def forward(
        self,
        layer: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: CPUAttentionMetadata | None,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        session = self._session
        if session is None or not isinstance(attn_metadata, OasisMetadata):
            return super().forward(
                layer, query, key, value, kv_cache, attn_metadata, output,
                output_scale, output_block_scale,
            )  # fmt: skip
        meta = attn_metadata
        if meta.sparse is None:
            super().forward(layer, query, key, value, kv_cache, meta, output)
        else:
            self._attend_sparse(session, layer, query, output, meta, meta.sparse)
            if meta.dense is not None:
                self._attend_dense(layer, query, kv_cache, output, meta.dense)
        if meta.selecting is not None:
            heads = query.view(-1, self.num_heads, self.head_size)
            session.engine.select(self._layer, meta.selecting.fill(heads), self.scale)
        return output

    def _attend_sparse(
        self,
        session: Session,
        layer: Any,
        query: torch.Tensor,
        output: torch.Tensor,
        meta: OasisMetadata,
        sparse: SparseRows,
    ) -> None:
        table, lengths = session.engine.attend(self._layer)
        table_t, lengths_t = sparse.of_layer(table, lengths)
        assert meta.arguments is not None
        if sparse.plan is None or sparse.planned_for != lengths.tobytes():
            sparse.planned_for = lengths.tobytes()
            sparse.plan = meta.arguments.plan(sparse.starts, lengths_t, self.num_queries_per_kv, 1)
        tokens = meta.num_actual_tokens
        shape = (tokens * self.num_kv_heads, self.num_queries_per_kv, self.head_size)
        rows = sparse.rows.take(query[:tokens].reshape(shape))
        whole = output[:tokens].view(shape)
        result = whole[: len(rows)] if sparse.rows.index is None else torch.empty_like(rows)
        key_cache, value_cache = self._fast
        self._kernel(
            layer, rows, key_cache, value_cache, result, sparse.starts, lengths_t,
            table_t, sparse.plan,
        )  # fmt: skip
        if sparse.rows.index is not None:
            whole[sparse.rows.index] = result
        if self._auditor is not None:
            self._auditor.observe(self._layer, rows, result, table)

    def _attend_dense(
        self,
        layer: Any,
        query: torch.Tensor,
        kv_cache: torch.Tensor,
        output: torch.Tensor,
        dense: DenseRows,
    ) -> None:
        blocks, heads, block, _ = kv_cache.shape
        key_cache, value_cache = kv_cache.view(blocks, heads, 2 * block, -1).chunk(2, dim=2)
        rows = query[dense.tokens].view(-1, self.num_heads, self.head_size)
        result = torch.empty_like(rows)
        self._kernel(
            layer, rows, key_cache, value_cache, result, dense.starts, dense.lengths,
            dense.table, dense.plan,
        )  # fmt: skip
        output.view(-1, self.num_heads, self.head_size)[dense.tokens] = result

    def _kernel(
        self,
        layer: Any,
        query: torch.Tensor,
        key_cache: torch.Tensor,
        value_cache: torch.Tensor,
        output: torch.Tensor,
        starts: torch.Tensor,
        lengths: torch.Tensor,
        table: torch.Tensor,
        plan: torch.Tensor,
    ) -> None:
        ops.cpu_attention_with_kv_cache(
            query=query,
            key_cache=key_cache,
            value_cache=value_cache,
            output=output,
            query_start_loc=starts,
            seq_lens=lengths,
            scale=self.scale,
            causal=True,
            alibi_slopes=None,
            sliding_window=-1,
            block_table=table,
            softcap=self.logits_soft_cap,
            scheduler_metadata=plan,
            s_aux=None,
            dynamic_causal=None,
            k_scale=layer._k_scale_float,
            v_scale=layer._v_scale_float,
            kv_cache_dtype=self.kv_cache_dtype,
        )
