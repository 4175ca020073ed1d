"""A request as the engine sees it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from oasis_runtime.core.budget import Budget
from oasis_runtime.core.drafting import DraftTrial
from oasis_runtime.core.hold import RecallHold
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

    def check(self, layers: int, heads: int, blocks: int) -> None:
        """Raise ValueError unless it can be a selection over ``blocks`` logical blocks of a model
        with so many layers and KV heads; one from a peer must be checked before it is used."""
        if self.count.shape != (layers, heads) or self.blocks.shape[:2] != (layers, heads):
            raise ValueError(
                f"the selection is of {self.blocks.shape[:2]} layers and heads, "
                f"this engine has {(layers, heads)}"
            )
        most = self.blocks.shape[2]
        if self.count.min(initial=0) < 0 or self.count.max(initial=0) > most:
            raise ValueError(f"the selection's counts are not within 0..{most}")
        used = np.arange(most) < self.count[:, :, None]
        outside = (self.blocks < 0) | (self.blocks >= blocks)
        falls = (np.diff(self.blocks, axis=2) <= 0) & used[:, :, 1:]
        if bool((outside & used).any()) or bool(falls.any()):
            raise ValueError(f"the selection's blocks are not ascending within 0..{blocks - 1}")
        if not 0 <= self.window <= blocks:
            raise ValueError(f"the selection's window starts at block {self.window} of {blocks}")


@dataclass
class Tracked:
    """What the engine remembers of a request between steps."""

    budget: Budget
    lane: int | None = None
    selection_length: int = 0
    """Tokens that the lane's selection was made from; 0 when it has none."""
    chosen_at: int = -1
    """Step in which the lane's selection was made, -1 when a peer made it."""
    window: int = 0
    computed: int = 0
    """Least tokens that the next step can find computed, unless the request starts again."""
    parked: Selection | None = None
    """Came with an admission and waits for the request's first step."""
    crowded_until: int = 0
    """The fast tier had no room for it: the step in which it may choose a set again."""
    unread_until: int = 0
    """Pages of it could not be copied: the step in which it may choose a set again."""
    remote: bool = False
    """Some pages are still with the prefill engine."""
    landed: bool = False
    """Some of them came since the last step."""
    hold: RecallHold = field(default_factory=RecallHold)
    drafts: DraftTrial = field(default_factory=DraftTrial)
    reasons: frozenset[str] = frozenset()
