"""A request as the engine sees it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oasis_runtime.core.budget import Budget
from oasis_runtime.kernels.contract import I32


@dataclass(frozen=True)
class StepRequest:
    """One request's share of one step.

    ``blocks``: int32, host block of each logical block. ``computed``: tokens with KV before the
    step. ``scheduled``: tokens of the step. ``prompt``: tokens of the prompt.
    """

    request_id: str
    blocks: I32
    computed: int
    scheduled: int
    prompt: int

    @property
    def length(self) -> int:
        return self.computed + self.scheduled


@dataclass(frozen=True)
class Selection:
    """Which blocks every layer and head of a request attends to next.

    ``blocks``: int32 [L, H, M], ascending logical blocks; ``count``: int32 [L, H]; ``window``:
    first logical block of the window that goes with it; ``length``: tokens that it was made from.
    """

    blocks: I32
    count: npt.NDArray[np.int32]
    window: int
    length: int


@dataclass
class Tracked:
    """What the engine remembers of a request between steps."""

    budget: Budget
    lane: int | None = None
    selection_length: int = 0
    """Tokens that the lane's selection was made from; 0 when it has none."""
    window: int = 0
    computed: int = 0
    """Least tokens that the next step can find computed, unless the request starts again."""
    parked: Selection | None = None
    """Came with an admission and waits for the request's first step."""
    remote: bool = False
    """Some pages are still with the prefill engine."""
    reasons: frozenset[str] = frozenset()
