"""What rounding block summaries to int8 costs in attention-mass recall, on a model's real keys.

    python bench/summaries.py [--model FOLDER] [--context 4096]

A transformers model reads English prose densely; its queries and keys after the rotary embedding
are recorded. For queries along the second half of the context, each KV head selects blocks by
bounds in float32, and by the summaries that the engine keeps. Recall is the share of a query head's
softmax mass over all keys that falls on the selected blocks, the sinks (64 tokens) and the window
(64).
"""

from __future__ import annotations

import argparse
import os
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
from oasis_runtime.core.bfloat16 import widen
from oasis_runtime.core.geometry import Geometry
from oasis_runtime.core.tables import Tables
from oasis_runtime.kernels.cpu import CpuKernels

F32 = npt.NDArray[np.float32]

LOCAL_TOKENS = 64
QUERIES = 16
CASES = ((16, 512), (16, 1024), (32, 512), (32, 1024))
"""Tokens of a block, and of the budget."""


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
    CpuKernels(t).summarize(0, r.key, np.arange(tokens))
    scale = widen(t.scale[0])[:, :, None]
    return Bounds(scale * t.low[0], scale * t.high[0])


def softmax(logits: F32) -> F32:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True), np.float32)


def recalls(r: Recorded, bounds: Bounds, block: int, budget: int) -> Iterator[F32]:
    """Attention-mass recall [H, G] of each recorded query."""
    local = LOCAL_TOKENS // block
    for query, position in zip(r.query, r.positions, strict=True):
        blocks = position // block  # all complete; the one of the query itself is in the window
        scale = query.shape[-1] ** -0.5
        low, high = (b[:blocks].transpose(1, 0, 2)[:, None] for b in (bounds.low, bounds.high))
        q = query[:, :, None]
        mass = softmax(scale * np.maximum(q * low, q * high).sum(axis=-1)).sum(axis=1)
        mass[:, :local] = mass[:, blocks - local :] = -1  # attended to in any case
        keep = np.zeros((query.shape[0], blocks + 1), bool)
        best = np.argsort(-mass, axis=1, kind="stable")[:, : budget // block]
        np.put_along_axis(keep, best, True, axis=1)
        keep[:, :local] = keep[:, blocks - local :] = True
        dense = softmax(scale * np.einsum("hgd,thd->hgt", query, r.key[: position + 1]))
        attended = np.repeat(keep, block, axis=1)[:, None, : position + 1]
        yield np.asarray((dense * attended).sum(axis=-1), np.float32)


def measure(model: str, context: int) -> dict[str, float]:
    layers = record(model, context)
    metrics = {}
    for block, budget in CASES:
        for name, summaries in (("float32", exact), ("int8", stored)):
            values = np.stack(
                [x for r in layers for x in recalls(r, summaries(r, block), block, budget)]
            )
            case = f"b{block}_k{budget}_{name}"
            metrics[f"recall_{case}"] = float(values.mean())
            metrics[f"recall_p5_{case}"] = float(np.quantile(values, 0.05))
        lost = metrics[f"recall_b{block}_k{budget}_float32"] - metrics[f"recall_{case}"]
        metrics[f"points_lost_b{block}_k{budget}"] = 100 * lost
    dim = layers[0].key.shape[2]
    metrics["share_of_kv_b16"] = (2 * dim + 2) / (2 * 16 * dim * 2)
    return metrics


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=os.environ.get("OASISKV_MODEL"))
    parser.add_argument("--context", type=int, default=4096)
    arguments = parser.parse_args()
    if arguments.model is None:
        parser.error("name a model folder with --model or OASISKV_MODEL")
    metrics = measure(arguments.model, arguments.context)
    print(f"wrote {result.write('summaries', metrics)}")


if __name__ == "__main__":
    main()
