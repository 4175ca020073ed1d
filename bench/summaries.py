"""What block summaries cost in attention-mass recall on a model's real keys: rounding them to int8,
and reading them in two levels.

    python bench/summaries.py [--model FOLDER] [--context 8192]

A transformers model reads English prose densely; its queries and keys after the rotary embedding
are recorded. For queries along the second half of the context, each KV head selects blocks by
bounds in float32, and by the summaries that the engine keeps. Recall is the share of a query head's
softmax mass over all keys that falls on the selected blocks, the sinks (64 tokens) and the window
(64).

Two levels: the bounds of some neighbouring blocks make those of a super-block. To find the same
blocks as one level does, all super-blocks must be read, and all blocks of those whose score is not
under that of the worst selected block; ``rows_read`` is the sum of both next to one level. Reading
the blocks of only the better half of the super-blocks loses ``half_points_lost``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import result
from bench.command_line import parsed, parser_of
from oasis_runtime.core.bfloat16 import widen
from oasis_runtime.core.geometry import Geometry
from oasis_runtime.core.tables import Tables
from oasis_runtime.kernels.cpu import CpuKernels

F32 = npt.NDArray[np.float32]

LOCAL_TOKENS = 64
QUERIES = 16
CASES = ((16, 512), (16, 1024), (32, 512), (32, 1024))
"""Tokens of a block, and of the budget."""
TWO_LEVELS = (16, 1024)
SUPER = (2, 4, 8)
"""Blocks of a super-block."""


@dataclass(frozen=True)
class Recorded:
    """One layer: ``query`` float32 [n, H, G, D] of the tokens at ``positions``, ``key`` float32
    [T, H, D]."""

    positions: Sequence[int]
    query: F32
    key: F32


@dataclass(frozen=True)
class Bounds:
    """Of each block and head: float32 [blocks, H, D]."""

    low: F32
    high: F32


def record(model: str, context: int) -> list[Recorded]:
    """Every layer's queries and keys of one prompt of ``context`` tokens."""
    text = "\n\n".join(topics[name] for name in sorted(topics))
    tokens = AutoTokenizer.from_pretrained(model)(text, return_tensors="pt").input_ids
    found: list[Recorded] = []
    positions = np.linspace(context // 2, context - 1, QUERIES).astype(int).tolist()
    dense = ALL_ATTENTION_FUNCTIONS["sdpa"]

    def attend(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        *rest: object,
        **more: object,
    ) -> object:
        heads, dim = key.shape[1], key.shape[3]
        chosen = query[0, :, positions].float().reshape(heads, -1, len(positions), dim)
        found.append(
            Recorded(
                positions,
                np.ascontiguousarray(chosen.permute(2, 0, 1, 3).numpy()),
                np.ascontiguousarray(key[0].float().permute(1, 0, 2).numpy()),
            )
        )
        return dense(module, query, key, *rest, **more)

    ALL_ATTENTION_FUNCTIONS["sdpa"] = attend
    try:
        network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        with torch.inference_mode():
            network.model(tokens[:, :context], use_cache=False)
    finally:
        ALL_ATTENTION_FUNCTIONS["sdpa"] = dense
    return found


def exact(r: Recorded, block: int) -> Bounds:
    blocks = r.key.reshape(-1, block, *r.key.shape[1:])
    return Bounds(blocks.min(axis=1), blocks.max(axis=1))


def stored(r: Recorded, block: int) -> Bounds:
    """As the engine's own kernels keep them."""
    tokens, heads, dim = r.key.shape
    g = Geometry(1, heads, 1, dim, block, 2, host_blocks=tokens // block, slots=heads)
    host = np.zeros((1, g.host_blocks, heads, g.page_bytes), np.uint8)
    fast = np.zeros((1, g.slots, g.page_bytes), np.uint8)
    t = Tables.create(g, np.array([host.ctypes.data], np.uint64), fast, lanes=1, max_selected=1)
    CpuKernels(t).summarize(0, r.key[None], np.arange(tokens))
    scale = widen(t.scale[0])[:, :, None]
    return Bounds(scale * t.low[0], scale * t.high[0])


def softmax(logits: F32) -> F32:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True), np.float32)


def masses(query: F32, bounds: Bounds, blocks: int) -> F32:
    """Scores [H, blocks] of the first blocks for the query [H, G, D] of one token."""
    return np.asarray(softmax(scores(query, bounds, blocks)).sum(axis=1), np.float32)


def scores(query: F32, bounds: Bounds, blocks: int) -> F32:
    """Upper bounds [H, G, blocks] of the logits of each query head."""
    low, high = (b[:blocks].transpose(1, 0, 2)[:, None] for b in (bounds.low, bounds.high))
    q = query[:, :, None]
    scale = query.shape[-1] ** -0.5
    return np.asarray(scale * np.maximum(q * low, q * high).sum(axis=-1), np.float32)


def best(mass: F32, count: int) -> npt.NDArray[np.bool_]:
    """Which blocks [H, n] are the ``count`` of each head with the most mass."""
    keep = np.zeros(mass.shape, bool)
    np.put_along_axis(keep, np.argsort(-mass, axis=1, kind="stable")[:, :count], True, axis=1)
    return keep


@dataclass(frozen=True)
class Query:
    """One recorded token's query, and the complete blocks before the one that it is in."""

    recorded: Recorded
    index: int
    block: int

    @property
    def query(self) -> F32:
        return np.asarray(self.recorded.query[self.index])

    @property
    def position(self) -> int:
        return self.recorded.positions[self.index]

    @property
    def blocks(self) -> int:
        return self.position // self.block

    @property
    def local(self) -> npt.NDArray[np.bool_]:
        """Blocks that are attended to in any case."""
        count = LOCAL_TOKENS // self.block
        out = np.zeros(self.blocks, bool)
        out[:count] = out[-count:] = True
        return out

    def recall(self, keep: npt.NDArray[np.bool_]) -> F32:
        """Of each query head [H, G], when these blocks [H, blocks] are attended to."""
        scale = self.query.shape[-1] ** -0.5
        key = self.recorded.key[: self.position + 1]
        dense = softmax(scale * np.einsum("hgd,thd->hgt", self.query, key))
        tokens = np.repeat(keep | self.local, self.block, axis=1)[:, None]
        own = dense[:, :, tokens.shape[2] :].sum(axis=-1)
        return np.asarray((dense[:, :, : tokens.shape[2]] * tokens).sum(axis=-1) + own, np.float32)


def queries(layers: Sequence[Recorded], block: int) -> Iterator[Query]:
    for recorded in layers:
        for index in range(len(recorded.positions)):
            yield Query(recorded, index, block)


def rounding(layers: Sequence[Recorded], block: int, budget: int) -> dict[str, float]:
    """Recall with the bounds in float32, and as the engine stores them."""
    case, metrics, means = f"b{block}_k{budget}", {}, {}
    for name, summarise in (("float32", exact), ("int8", stored)):
        bounds = {id(r): summarise(r, block) for r in layers}
        values = []
        for q in queries(layers, block):
            mass = masses(q.query, bounds[id(q.recorded)], q.blocks)
            values.append(q.recall(best(np.where(q.local, -1, mass), budget // block)))
        means[name] = float(np.mean(values))
        metrics[f"recall_{case}_{name}"] = means[name]
        metrics[f"recall_p5_{case}_{name}"] = float(np.quantile(values, 0.05))
    metrics[f"points_lost_{case}"] = 100 * (means["float32"] - means["int8"])
    return metrics


def two_levels(
    layers: Sequence[Recorded], block: int, budget: int, together: int
) -> dict[str, float]:
    """What super-blocks of ``together`` blocks would have to read, and what half of them lose."""
    read, lost = [], []
    bounds = {id(r): stored(r, block) for r in layers}
    for q in queries(layers, block):
        one = bounds[id(q.recorded)]
        groups = -(-q.blocks // together)
        heads, dim = one.low.shape[1:]
        pad = ((0, groups * together - q.blocks), (0, 0), (0, 0))
        low, high = (
            np.pad(b[: q.blocks], pad, mode="edge").reshape(groups, together, heads, dim)
            for b in (one.low, one.high)
        )
        logits = scores(q.query, one, q.blocks)
        top = logits.max(axis=-1, keepdims=True)
        total = np.exp(logits - top).sum(axis=-1, keepdims=True)
        mass = np.where(q.local, -1, (np.exp(logits - top) / total).sum(axis=1))
        above = scores(q.query, Bounds(low.min(axis=1), high.max(axis=1)), groups)
        group_mass = (np.exp(above - top) / total).sum(axis=1)
        worst = -np.sort(-mass, axis=1)[:, budget // block - 1]
        read.append(1 / together + (group_mass >= worst[:, None]).mean())
        half = np.repeat(best(group_mass, -(-groups // 2)), together, axis=1)[:, : q.blocks]
        full = q.recall(best(mass, budget // block)).mean()
        lost.append(full - q.recall(best(np.where(half, mass, -1), budget // block)).mean())
    case = f"super{together}_b{block}_k{budget}"
    return {
        f"rows_read_{case}": float(np.mean(read)),
        f"half_points_lost_{case}": 100 * float(np.mean(lost)),
    }


def measure(model: str, context: int) -> dict[str, float]:
    layers = record(model, context)
    metrics: dict[str, float] = {}
    for block, budget in CASES:
        metrics |= rounding(layers, block, budget)
    for together in SUPER:
        metrics |= two_levels(layers, *TWO_LEVELS, together)
    dim = layers[0].key.shape[2]
    metrics["share_of_kv_b16"] = (2 * dim + 2) / (2 * 16 * dim * 2)
    return metrics


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--context", type=int, default=8192)
    options = parsed(parser)
    metrics = measure(str(options.model), options.context)
    print(f"wrote {result.write('summaries', metrics)}")


if __name__ == "__main__":
    main()
