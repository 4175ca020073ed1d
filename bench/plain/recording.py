"""Queries and keys of a real model while it answers, recorded once and replayed at will.

Greedy answers with dense attention in float32. Beside the row of each token the pass has rows of
drafts of the token that follows: the one of an n-gram (vLLM's prompt look-up), and one that is
always wrong, the second best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from bench.plain.llama import Llama, dense_attention

F32 = npt.NDArray[np.float32]
_CHUNK = 512


@dataclass(frozen=True)
class Recording:
    """A prompt of P tokens and its answer of A; L layers, H KV heads, G query heads each, size D.

    ``tokens``: int64 [P + A]. ``keys``: [L, P + A, H, D]. ``tail``: [T, L, H, G, D], queries of the
    prompt's last T tokens. ``query``: [A, L, H, G, D], of the answer's tokens. ``ngram`` and
    ``wrong``: the same of drafts of the token after each; ``hit``: int8 [A], 1 where the n-gram's
    draft was right, 0 where wrong, -1 where there was none.
    """

    tokens: npt.NDArray[np.int64]
    keys: F32
    tail: F32
    query: F32
    ngram: F32
    wrong: F32
    hit: npt.NDArray[np.int8]

    @property
    def prompt(self) -> int:
        return len(self.tokens) - len(self.query)

    def save(self, path: Path) -> None:
        with path.open("wb") as file:
            np.savez(file, **{f.name: getattr(self, f.name) for f in fields(self)})

    @staticmethod
    def load(path: Path) -> Recording:
        with np.load(path) as file:
            return Recording(**{f.name: file[f.name] for f in fields(Recording)})


class _Cache:
    """Dense KV of one sequence; ``queries`` of the pass that it served last."""

    def __init__(self, model: Llama, tokens: int) -> None:
        s = model.shape
        self.keys = torch.zeros(s.layers, tokens, s.kv_heads, s.dim)
        self.values = torch.zeros_like(self.keys)
        self.queries = torch.zeros(s.layers, 0, s.heads, s.dim)
        self._model = model

    def run(self, tokens: Sequence[int], computed: int, drafts: bool = False) -> torch.Tensor:
        """Hidden states [n, hidden] of tokens that follow ``computed`` others. ``drafts``: they
        are alternatives of one position, which do not see each other and are not kept."""
        n, queries = len(tokens), []

        def attend(
            layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
        ) -> torch.Tensor:
            queries.append(query)
            keys, values = self.keys[layer], self.values[layer]
            if drafts:
                rows = [
                    dense_attention(
                        query[i : i + 1],
                        torch.cat((keys[:computed], key[i : i + 1])),
                        torch.cat((values[:computed], value[i : i + 1])),
                        computed,
                    )
                    for i in range(n)
                ]
                return torch.cat(rows)
            keys[computed : computed + n], values[computed : computed + n] = key, value
            return dense_attention(query, keys[: computed + n], values[: computed + n], computed)

        position = torch.full((n,), computed) if drafts else torch.arange(computed, computed + n)
        hidden = self._model.forward(torch.tensor(tokens), position, attend)
        self.queries = torch.stack(queries)
        return hidden


def ngram_draft(tokens: Sequence[int], shortest: int, longest: int) -> int | None:
    """The token after the earliest occurrence of the longest suffix that occurs before, as vLLM's
    prompt look-up proposes it."""
    for size in range(longest, shortest - 1, -1):
        suffix = list(tokens[-size:])
        for start in range(len(tokens) - size):
            if list(tokens[start : start + size]) == suffix:
                return tokens[start + size]
    return None


def record(model: Llama, prompt: Sequence[int], answer: int, tail: int) -> Recording:
    """Answer ``prompt`` greedily with ``answer`` tokens."""
    s = model.shape

    def rows(queries: torch.Tensor) -> F32:
        """[n, L, H, G, D] of queries [L, n, heads, D]."""
        found: F32 = (
            queries.transpose(0, 1).numpy().reshape(-1, s.layers, s.kv_heads, s.group, s.dim)
        )
        return found

    cache = _Cache(model, len(prompt) + answer)
    tokens, last = list(prompt), []
    for start in range(0, len(prompt), _CHUNK):
        hidden = cache.run(prompt[start : start + _CHUNK], start)
        last.append(rows(cache.queries)[-tail:])
    query, wrong, ngram, hit = [], [], [], []
    for _ in range(answer):
        tokens.append(int(model.logits(hidden[-1:]).argmax()))
        hidden = cache.run(tokens[-1:], len(tokens) - 1)
        query.append(rows(cache.queries)[0])
        best = model.logits(hidden)[0].topk(2).indices.tolist()
        draft = ngram_draft(tokens, 2, 4)
        cache.run([best[1], best[0] if draft is None else draft], len(tokens), drafts=True)
        wrong.append(rows(cache.queries)[0])
        ngram.append(rows(cache.queries)[1])
        hit.append(-1 if draft is None else int(draft == best[0]))
    return Recording(
        np.array(tokens),
        cache.keys.numpy(),
        np.concatenate(last)[-tail:],
        np.stack(query),
        np.stack(ngram),
        np.stack(wrong),
        np.array(hit, np.int8),
    )
