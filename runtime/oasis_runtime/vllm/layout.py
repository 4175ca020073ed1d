"""Where vLLM's CPU kernels put a key inside a page.

The layout of keys depends on the instruction set that the kernels picked (some store them
transposed or packed for AMX), so it is measured and not assumed: a page is written with known
numbers through vLLM's own operator and read back raw.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from vllm import _custom_ops as ops


@dataclass(frozen=True)
class PageLayout:
    """``keys``, ``values``: int64 [block, D], index of each element in a page's flat elements."""

    keys: torch.Tensor
    values: torch.Tensor

    def fingerprint(self) -> str:
        """Equal for two engines whose pages can be copied into each other."""
        raw = self.keys.numpy().tobytes() + self.values.numpy().tobytes()
        return hashlib.sha256(raw).hexdigest()[:16]


def probe(block: int, dim: int, dtype: torch.dtype, isa: str) -> PageLayout:
    """Raises RuntimeError when a page is not a permutation of its keys and values."""

    def written(key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        page = torch.full((1, 1, 2 * block, dim), -1.0, dtype=dtype)
        key_cache, value_cache = page.chunk(2, dim=2)
        ops.cpu_attn_reshape_and_cache(
            key.to(dtype).view(block, 1, dim),
            value.to(dtype).view(block, 1, dim),
            key_cache,
            value_cache,
            torch.arange(block),
            isa,
            k_scale=1.0,
            v_scale=1.0,
            kv_cache_dtype="auto",
        )
        return page.view(-1).long()

    token = torch.arange(block).float().view(-1, 1).expand(block, dim).contiguous()
    lane = torch.arange(dim).float().view(1, -1).expand(block, dim).contiguous()
    nothing = torch.full((block, dim), -1.0)

    def positions(tokens: torch.Tensor, lanes: torch.Tensor) -> torch.Tensor:
        found = torch.full((block, dim), -1, dtype=torch.int64)
        at = ((tokens >= 0) & (lanes >= 0)).nonzero().view(-1)
        found[tokens[at], lanes[at]] = at
        if len(at) != block * dim or bool((found < 0).any()):
            raise RuntimeError(
                f"vLLM's {isa} kernels pack keys in a way this version of OasisKV does not know"
            )
        return found

    return PageLayout(
        positions(written(token, nothing), written(lane, nothing)),
        positions(written(nothing, token), written(nothing, lane)),
    )
