"""A greedy decode loop, over the engine core or over plain dense attention."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bench.plain.llama import Llama, dense_attention
from bench.plain.server import PlainServer


def greedy(
    server: PlainServer, request_id: str, prompt: Sequence[int], tokens: int, chunk: int = 512
) -> list[int]:
    """``tokens`` answers to ``prompt``, whose KV is computed ``chunk`` tokens at a time."""
    server.add(request_id, len(prompt))
    for start in range(0, len(prompt), chunk):
        logits = server.step({request_id: prompt[start : start + chunk]})[request_id]
    answer = [int(logits[-1].argmax())]
    while len(answer) < tokens:
        answer.append(int(server.step({request_id: answer[-1:]})[request_id][-1].argmax()))
    server.end(request_id)
    return answer


def dense_greedy(model: Llama, prompt: Sequence[int], tokens: int) -> list[int]:
    """The same without the engine: every step attends to all keys and values before it."""
    s = model.shape
    cache = torch.zeros(s.layers, 2, len(prompt) + tokens, s.kv_heads, s.dim)
    answer: list[int] = []
    scheduled, computed = list(prompt), 0
    while len(answer) < tokens:
        length = computed + len(scheduled)

        def attend(
            layer: int,
            query: torch.Tensor,
            key: torch.Tensor,
            value: torch.Tensor,
            computed: int = computed,
            length: int = length,
        ) -> torch.Tensor:
            keys, values = cache[layer]
            keys[computed:length], values[computed:length] = key, value
            return dense_attention(query, keys[:length], values[:length], computed)

        positions = torch.arange(computed, length)
        hidden = model.forward(torch.tensor(scheduled), positions, attend)
        answer.append(int(model.logits(hidden[-1:]).argmax()))
        scheduled, computed = answer[-1:], length
    return answer
