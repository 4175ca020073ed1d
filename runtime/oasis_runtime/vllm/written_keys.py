"""The keys of a step on their way from vLLM's layers to the engine."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from oasis_runtime.contract import MOST_DRAFTS
from oasis_runtime.core.engine import SparseEngine, Step
from oasis_runtime.kernels.contract import F32, I64

_FEW = 1 + MOST_DRAFTS
"""Tokens of a request that a step which decodes computes at most, drafts among them."""


@dataclass(frozen=True)
class WrittenKeys:
    """``slots``: int64 [tokens], host slots; ``keys``: float32 [n, tokens, H, D], the memory of
    ``room``, of n layers.

    Where no request of a step selects or attends to the fast tier, nobody asks for its summaries:
    the keys wait until all layers have theirs, which costs less. Those of prompts do not wait: they
    would take half of their KV in memory once more.
    """

    slots: I64
    room: torch.Tensor
    keys: F32
    waits: bool

    @staticmethod
    def of(step: Step, layers: int, key: torch.Tensor, mapping: torch.Tensor) -> WrittenKeys:
        """``key``: [>= tokens, H, D] of any layer; ``mapping``: vLLM's slot of each token."""
        slots = mapping[: len(key)].contiguous().numpy()
        most = max((r.scheduled for r in step.batch), default=0)
        waits = not step.selecting and most <= _FEW
        room = torch.empty(layers if waits else 1, len(slots), *key.shape[1:])
        return WrittenKeys(slots, room, room.numpy(), waits)

    def add(self, engine: SparseEngine, layer: int, key: torch.Tensor) -> None:
        """``key``: [>= tokens, H, D]. Every layer has some."""
        self.room[layer if self.waits else 0].copy_(key[: len(self.slots)])
        if not self.waits:
            engine.write(layer, self.keys, self.slots)

    def finish(self, engine: SparseEngine) -> None:
        """The last layer of the step has been computed."""
        if self.waits:
            engine.write(0, self.keys, self.slots)
