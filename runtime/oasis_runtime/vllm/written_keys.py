"""The keys of a step on their way from vLLM's layers to the engine."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from oasis_runtime.core.engine import SparseEngine, Step
from oasis_runtime.kernels.contract import F32, I64

_FEW = 16
"""Tokens of a request that a step which decodes computes at most, drafts among them."""


@dataclass(frozen=True)
class WrittenKeys:
    """``slots``: int64 [tokens], host slots; ``keys``: float32 [1, tokens, H, D], the memory of
    ``room``, for one layer at a time.

    Where no request of a step selects or attends to the fast tier, nobody asks for its summaries:
    the keys of its layers are kept in ``waiting`` and handed over together, which costs less.
    Prompts do not wait, because their keys would take the memory of a layer's KV for each layer.
    """

    slots: I64
    room: torch.Tensor
    keys: F32
    waits: bool
    waiting: list[torch.Tensor]

    @staticmethod
    def of(step: Step, key: torch.Tensor, mapping: torch.Tensor) -> WrittenKeys:
        slots = mapping[: len(key)].contiguous().numpy()
        room = torch.empty(len(slots), *key.shape[1:])
        most = max((r.scheduled for r in step.batch), default=0)
        waits = not step.selecting and most <= _FEW
        return WrittenKeys(slots, room, room.numpy()[None], waits, [])

    def add(self, engine: SparseEngine, layer: int, key: torch.Tensor) -> None:
        """``key``: [>= tokens, H, D]. Every layer comes, in ascending order."""
        if self.waits:
            assert layer == len(self.waiting)
            self.waiting.append(key[: len(self.slots)])
        else:
            self.room.copy_(key[: len(self.slots)])
            engine.write(layer, self.keys, self.slots)

    def finish(self, engine: SparseEngine) -> None:
        """The last layer of the step has been computed."""
        if self.waiting:
            engine.write(0, torch.stack(self.waiting).float().numpy(), self.slots)
