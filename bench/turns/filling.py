"""Contexts of any length without minutes of prefill: keys and values of a recorded prompt.

Decoding 16K tokens of context takes a fifth of a second a step, computing them a minute. So a short
prompt is computed for real and its keys and values are kept; while prompts are taken in, the
model's forward pass writes those, block after block, instead of computing. vLLM schedules, hashes
and caches the prompt as ever, and the steps that are timed run the whole model. Past the recorded
prompt the content is a repetition: good for time, not for answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.attention import Attention


class Filling:
    """Of one model; ``keys`` and ``values``: per layer [T, H, D], as recorded."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._layers = [m for m in model.modules() if isinstance(m, Attention)]
        self._keys: list[list[torch.Tensor]] = [[] for _ in self._layers]
        self._values: list[list[torch.Tensor]] = [[] for _ in self._layers]

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Keep what the layers write to the cache meanwhile."""
        with _replaced([layer.impl for layer in self._layers], "do_kv_cache_update", self._keep):
            yield

    def _keep(self, number: int, real: Any) -> Any:
        def update(layer: Any, key: torch.Tensor, value: torch.Tensor, *rest: Any) -> None:
            self._keys[number].append(key.clone())
            self._values[number].append(value.clone())
            real(layer, key, value, *rest)

        return update

    @contextmanager
    def filling(self) -> Iterator[None]:
        """Write recorded keys and values for every token that is scheduled meanwhile."""
        keys = [torch.cat(parts) for parts in self._keys]
        values = [torch.cat(parts) for parts in self._values]

        def forward(input_ids: torch.Tensor, positions: torch.Tensor, **_: Any) -> torch.Tensor:
            mappings: Any = get_forward_context().slot_mapping
            for number, layer in enumerate(self._layers):
                slots = mappings[layer.layer_name]
                block = layer.kv_cache.shape[2]
                # Each block of the cache begins elsewhere, so that requests differ.
                rows = (positions + 7 * block * (slots // block)) % len(keys[number])
                impl: Any = layer.impl
                impl.do_kv_cache_update(
                    layer, keys[number][rows], values[number][rows], layer.kv_cache, slots
                )
            return torch.zeros(len(input_ids), self._width, dtype=keys[0].dtype)

        with _replaced([self._model], "forward", lambda *_: forward):
            yield

    @property
    def _width(self) -> int:
        config: Any = self._model.config
        return int(config.hidden_size)


@contextmanager
def _replaced(owners: list[Any], name: str, make: Any) -> Iterator[None]:
    """The method ``name`` of each owner is ``make(number, method)`` meanwhile."""
    for number, owner in enumerate(owners):
        setattr(owner, name, make(number, getattr(owner, name)))
    try:
        yield
    finally:
        for owner in owners:
            delattr(owner, name)
