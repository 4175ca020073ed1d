"""A Llama in plain torch, whose attention is the caller's.

RMS norm, rotary positions, grouped-query attention and SwiGLU, as in the Llama paper (arXiv
2302.13971). Weights keep the names of their files, without the prefix ``model.``; a model without
``lm_head.weight`` answers with its embeddings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """``heads`` query heads share ``kv_heads`` KV heads of size ``dim``."""

    layers: int
    heads: int
    kv_heads: int
    dim: int
    hidden: int
    inner: int
    vocabulary: int
    rope_theta: float = 1e5
    epsilon: float = 1e-5

    @property
    def group(self) -> int:
        return self.heads // self.kv_heads


class Attention(Protocol):
    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """Attention output [n, heads, D] of one layer for the n tokens of a pass, whose query
        [n, heads, D], key and value [n, kv_heads, D] carry their positions already."""


class Llama:
    def __init__(self, shape: Shape, weights: Mapping[str, torch.Tensor]) -> None:
        self.shape = shape
        self._weights = weights

    @staticmethod
    def random(shape: Shape, seed: int, dtype: torch.dtype = torch.float32) -> Llama:
        """Weights that keep activations near unit size, with queries and keys twice as large: so
        attention is sharp enough that what it leaves out changes the answer."""
        generator = torch.Generator().manual_seed(seed)

        def normal(rows: int, columns: int, scale: float) -> torch.Tensor:
            return scale * torch.randn(rows, columns, generator=generator)

        s = shape
        weights = {
            "embed_tokens.weight": normal(s.vocabulary, s.hidden, 1.0),
            "lm_head.weight": normal(s.vocabulary, s.hidden, 1.0),
            "norm.weight": torch.ones(s.hidden),
        }
        inputs = {
            "self_attn.q_proj": (s.heads * s.dim, s.hidden, 2.0),
            "self_attn.k_proj": (s.kv_heads * s.dim, s.hidden, 2.0),
            "self_attn.v_proj": (s.kv_heads * s.dim, s.hidden, 1.0),
            "self_attn.o_proj": (s.hidden, s.heads * s.dim, 1.0),
            "mlp.gate_proj": (s.inner, s.hidden, 1.0),
            "mlp.up_proj": (s.inner, s.hidden, 1.0),
            "mlp.down_proj": (s.hidden, s.inner, 1.0),
        }
        for layer in range(s.layers):
            at = f"layers.{layer}."
            for name, (rows, columns, scale) in inputs.items():
                weights[f"{at}{name}.weight"] = normal(rows, columns, scale * columns**-0.5)
            for name in ("input_layernorm", "post_attention_layernorm"):
                weights[f"{at}{name}.weight"] = torch.ones(s.hidden)
        return Llama(shape, {name: weight.to(dtype) for name, weight in weights.items()})

    @torch.inference_mode()
    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, attention: Attention
    ) -> torch.Tensor:
        """Final hidden states [n, hidden] of int64 tokens [n] at positions [n]."""
        s = self.shape
        rotary = self._rotary(positions)
        x = self._weights["embed_tokens.weight"][tokens]
        for layer in range(s.layers):
            at = f"layers.{layer}."
            y = self._norm(x, f"{at}input_layernorm")
            query, key, value = (
                self._linear(y, f"{at}self_attn.{part}_proj").view(len(tokens), -1, s.dim)
                for part in "qkv"
            )
            out = attention(layer, _rotate(query, rotary), _rotate(key, rotary), value)
            x = x + self._linear(out.reshape(len(tokens), -1), f"{at}self_attn.o_proj")
            y = self._norm(x, f"{at}post_attention_layernorm")
            gate = functional.silu(self._linear(y, f"{at}mlp.gate_proj"))
            x = x + self._linear(gate * self._linear(y, f"{at}mlp.up_proj"), f"{at}mlp.down_proj")
        return self._norm(x, "norm")

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[n, vocabulary] of hidden states [n, hidden]."""
        embeddings = self._weights["embed_tokens.weight"]
        return hidden @ self._weights.get("lm_head.weight", embeddings).T

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return functional.linear(x, self._weights[f"{name}.weight"])

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        weight = self._weights[f"{name}.weight"]
        return functional.rms_norm(x, weight.shape, weight, self.shape.epsilon)

    def _rotary(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine [n, 1, D / 2] of each position's angles."""
        s, device = self.shape, positions.device
        pairs = torch.arange(0, s.dim, 2, dtype=torch.float64, device=device)
        angles = positions.double()[:, None] * s.rope_theta ** (-pairs / s.dim)
        return angles.cos()[:, None], angles.sin()[:, None]


def _rotate(x: torch.Tensor, rotary: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    cosine, sine = (part.to(x.dtype) for part in rotary)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


def dense_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, computed: int
) -> torch.Tensor:
    """Causal attention [n, heads, D] of the n tokens that follow ``computed`` others, over keys and
    values [computed + n, kv_heads, D]."""
    key, value = key.to(query.dtype), value.to(query.dtype)
    n, heads, dim = query.shape
    kv_heads = key.shape[1]
    # The query heads of a KV head as more rows of one head: nothing is repeated, and four
    # dimensions get torch's fused kernel on a CPU.
    rows = query.view(n, kv_heads, -1, dim).permute(1, 2, 0, 3).reshape(1, kv_heads, -1, dim)
    mask = torch.ones(n, computed + n, dtype=torch.bool, device=query.device).tril(computed)
    out = functional.scaled_dot_product_attention(
        rows,
        key.transpose(0, 1)[None],
        value.transpose(0, 1)[None],
        attn_mask=mask.repeat(heads // kv_heads, 1),
    )
    return out.view(kv_heads, -1, n, dim).permute(2, 0, 1, 3).reshape(n, heads, dim)
