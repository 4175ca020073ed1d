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
    """``slots``: int64 [tokens], host slots.

    Where no request of a step selects or attends to the fast tier, nobody asks for its summaries:
    the keys wait in ``waiting``, as vLLM's own tensors, until all layers have theirs, and are
    converted at once, which costs a tenth. Otherwise each layer's go through ``room``, float32
    [1, tokens, H, D], of which ``keys`` is the memory. Those of prompts do not wait either: they
    would keep half of their KV in memory once more.
    """

    slots: I64
    waiting: list[torch.Tensor]
    room: torch.Tensor | None
    keys: F32

    @staticmethod
    def of(step: Step, key: torch.Tensor, mapping: torch.Tensor) -> WrittenKeys:
        """``key``: [>= tokens, H, D] of any layer; ``mapping``: vLLM's slot of each token."""
        slots = mapping[: len(key)].contiguous().numpy()
        most = max((r.scheduled for r in step.batch), default=0)
        waits = not step.selecting and most <= _FEW
        room = torch.empty(0 if waits else 1, len(slots), *key.shape[1:])
        return WrittenKeys(slots, [], None if waits else room, room.numpy())

    def add(self, engine: SparseEngine, layer: int, key: torch.Tensor) -> None:
        """``key``: [>= tokens, H, D]. Every layer has some, and they come in their order."""
        if self.room is None:
            self.waiting.append(key)
            return
        self.room[0].copy_(key[: len(self.slots)])
        engine.write(layer, self.keys, self.slots)

    def finish(self, engine: SparseEngine) -> None:
        """The last layer of the step has been computed."""
        if self.waiting:
            keys = torch.stack(self.waiting)[:, : len(self.slots)].float().contiguous()
            engine.write(0, keys.numpy(), self.slots)
