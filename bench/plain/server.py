"""Serves a plain model through the engine core: the smallest host that the core can have. Both
tiers are float32, whatever the model computes in.

It gives out blocks, writes keys and values to both tiers, attends over the core's block tables and
asks the core for the next set, in the order that docs/adding-an-engine.md gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from torch.nn import functional

from bench.plain.llama import Llama, dense_attention
from oasis_runtime.contract import PrefetchConfig, SelectionConfig
from oasis_runtime.core.engine import SparseEngine, Step
from oasis_runtime.core.geometry import Geometry
from oasis_runtime.core.requests import StepRequest
from oasis_runtime.core.tables import Tables
from oasis_runtime.kernels.contract import I32, Kernels
from oasis_runtime.kernels.cpu import CpuKernels


@dataclass(frozen=True)
class Sizes:
    """``slots``: pages of the fast tier per layer; ``lanes``: requests that may have a set."""

    block: int
    host_blocks: int
    slots: int
    lanes: int = 4


@dataclass
class _Request:
    prompt: int
    computed: int = 0
    blocks: list[int] = field(default_factory=list)


class PlainServer:
    """Not thread-safe; ends with :meth:`close`."""

    def __init__(
        self,
        model: Llama,
        sizes: Sizes,
        selection: SelectionConfig,
        prefetch: PrefetchConfig,
        kernels: Callable[[Tables], Kernels] = CpuKernels,
    ) -> None:
        s = model.shape
        g = self._geometry = Geometry(
            layers=s.layers,
            heads=s.kv_heads,
            group=s.group,
            dim=s.dim,
            block=sizes.block,
            element_bytes=4,
            host_blocks=sizes.host_blocks,
            slots=sizes.slots,
        )
        self._model = model
        # A page is [2, block, D]: its keys, then its values.
        self._host = torch.zeros(g.layers, g.host_blocks, g.heads, 2, g.block, g.dim)
        self._fast = torch.zeros(g.layers, g.slots, 2, g.block, g.dim)
        tables = Tables.create(
            g,
            np.array([layer.data_ptr() for layer in self._host], np.uint64),
            self._fast.numpy().view(np.uint8).reshape(g.layers, g.slots, g.page_bytes),
            sizes.lanes,
            max_selected=selection.budget_tokens // g.block,
        )
        self.engine = SparseEngine(tables, kernels(tables), selection, prefetch)
        self._requests: dict[str, _Request] = {}
        self._free = list(range(g.host_blocks))

    def add(self, request_id: str, prompt_tokens: int) -> None:
        self._requests[request_id] = _Request(prompt_tokens)

    def blocks(self, request_id: str) -> I32:
        """Host block of each logical block that the request has by now."""
        return np.array(self._requests[request_id].blocks, np.int32)

    def end(self, request_id: str) -> None:
        """The request's blocks are free from here on."""
        self.engine.requests.forget(request_id)
        self._free += self._requests.pop(request_id).blocks

    def step(self, scheduled: Mapping[str, Sequence[int]]) -> dict[str, torch.Tensor]:
        """Compute the tokens that follow each request's own; returns their logits [n, vocabulary].

        All of them count as computed; see :meth:`reject`. Raises IndexError when the host tier is
        full.
        """
        batch = [self._ask(name, len(tokens)) for name, tokens in scheduled.items()]
        counts = [r.scheduled for r in batch]
        tokens = torch.tensor([t for part in scheduled.values() for t in part])
        positions = torch.cat([torch.arange(r.computed, r.length) for r in batch])
        work = _Pass(self, batch, self.engine.begin_step(batch), positions)
        hidden = self._model.forward(tokens, positions, work.attention)
        self.engine.end_step()
        for r in batch:
            self._requests[r.request_id].computed = r.length
        parts = self._model.logits(hidden).split(counts)  # type: ignore[no-untyped-call]
        return dict(zip(scheduled, parts, strict=True))

    def reject(self, request_id: str, tokens: int) -> None:
        """The last ``tokens`` of the request were drafts that turned out to be wrong."""
        self._requests[request_id].computed -= tokens

    def _ask(self, name: str, count: int) -> StepRequest:
        r = self._requests[name]
        while len(r.blocks) < self._geometry.blocks_for(r.computed + count):
            r.blocks.append(self._free.pop())
        return StepRequest(name, np.array(r.blocks, np.int32), r.computed, count, r.prompt)

    def close(self) -> None:
        self.engine.close()

    # ------------------------------------------------------------------------ tiers

    def host_rows(self, layer: int, blocks: I32) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [n * block, heads, D] of host blocks."""
        pages = self._host[layer, torch.from_numpy(blocks).long()]
        keys, values = pages.permute(2, 0, 3, 1, 4).flatten(1, 2)
        return keys, values

    def write(
        self, layer: int, slots: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> None:
        """Put rows [n, heads, D] at host slots [n]."""
        block, position = slots // self._geometry.block, slots % self._geometry.block
        self._host[layer, block, :, 0, position] = key.float()
        self._host[layer, block, :, 1, position] = value.float()

    def attend(
        self, layer: int, table: torch.Tensor, lengths: torch.Tensor, query: torch.Tensor
    ) -> torch.Tensor:
        """Output [heads, group, tokens, D] of one request's query of that shape, over pages of the
        fast tier. ``table``: int64 [heads, width] of slots; ``lengths``: [heads], in tokens, the
        last of which are the query's own."""
        pages = self._fast[layer, table].to(query.dtype)
        keys, values = pages.transpose(0, 2).transpose(1, 2).flatten(2, 3)
        tokens = query.shape[2]
        ends = lengths[:, None] - torch.arange(tokens - 1, -1, -1)
        seen = torch.arange(keys.shape[1]) < ends[:, :, None]
        return functional.scaled_dot_product_attention(
            query, keys[:, None], values[:, None], attn_mask=seen[:, None]
        )


class _Pass:
    """One step's way through the layers."""

    def __init__(
        self, server: PlainServer, batch: Sequence[StepRequest], step: Step, positions: torch.Tensor
    ) -> None:
        self._server, self._batch, self._step = server, batch, step
        g = server.engine.tables.geometry
        counts = [r.scheduled for r in batch]
        starts = np.concatenate(([0], np.cumsum(counts))).tolist()
        self._rows = [slice(a, b) for a, b in pairwise(starts)]
        blocks = [torch.from_numpy(r.blocks).long() for r in batch]
        self._slots = torch.cat(
            [
                b[positions[rows] // g.block] * g.block + positions[rows] % g.block
                for b, rows in zip(blocks, self._rows, strict=True)
            ]
        )

    def attention(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        server, engine, step = self._server, self._server.engine, self._step
        g = engine.tables.geometry
        server.write(layer, self._slots, key, value)
        engine.write(layer, key.float().contiguous().numpy()[None], self._slots.numpy())
        out = torch.empty_like(query)
        for i in step.dense:
            r = self._batch[i]
            keys, values = server.host_rows(layer, r.blocks)
            mine = (query[self._rows[i]], keys[: r.length], values[: r.length])
            out[self._rows[i]] = dense_attention(*mine, r.computed)
        if step.sparse:
            table, lengths = (torch.from_numpy(a).long() for a in engine.attend(layer))
            for n, i in enumerate(step.sparse):
                lines = slice(n * g.heads, (n + 1) * g.heads)
                q = self._grouped(query[self._rows[i]]).permute(1, 2, 0, 3)
                found = server.attend(layer, table[lines], lengths[lines], q)
                out[self._rows[i]] = found.permute(2, 0, 1, 3).flatten(1, 2)
        if step.selecting:
            last = [self._rows[i].stop - 1 for i in step.selecting]
            chosen = self._grouped(query[last]).float().contiguous()
            engine.select(layer, chosen.numpy(), g.dim**-0.5)
        return out

    def _grouped(self, query: torch.Tensor) -> torch.Tensor:
        """[tokens, query heads, D] -> [tokens, KV heads, query heads of one, D]."""
        g = self._server.engine.tables.geometry
        return query.reshape(len(query), g.heads, g.group, query.shape[-1])
