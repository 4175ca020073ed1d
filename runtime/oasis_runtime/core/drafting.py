"""Whether a request's drafts pay: the decision of ``prediction.method: auto``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from oasis_runtime.contract import PredictionConfig

DraftMethod = Literal["draft", "ngram"]
"""What makes draft tokens: the model's draft heads, or a look-up in the request's own tokens."""
DRAFT_METHODS: tuple[DraftMethod, ...] = get_args(DraftMethod)

STEP_COST, ROW_COST = 0.1, 0.03
"""What drafting adds to a step, and each draft to that, in parts of a step without drafts (measured
with bench/drafts.py, 4 to 16 drafts). Drafts pay while those that are right are more than that.
A wrong draft's query predicts the next set as well as the previous token's (bench/lookahead.py),
so that only the cost decides."""
SAMPLES = 16
"""Drafts before a method is judged."""
FIRST_TOKENS = 128
"""Length of the first pause, in tokens; each one after is twice as long as the one before."""
_WEIGHT = 1 / 32
"""Of the newest draft in the mean."""


def draft_methods(prediction: PredictionConfig) -> Sequence[DraftMethod]:
    """What ``auto`` tries, the best first."""
    return DRAFT_METHODS if prediction.draft_heads else ("ngram",)


@dataclass
class DraftTrial:
    """One request's drafting.

    A method that does not pay gives way to the next one for good: draft heads that skipped a token
    lack its keys and values. The last one pauses. Nothing tells meanwhile whether its drafts would
    be right again, so it is tried again after a while, and ever more rarely.
    """

    mean: float = 0.0
    """Exponentially weighted gain of a step, in tokens of a step without drafts."""
    samples: int = 0
    tokens: int = FIRST_TOKENS
    """Length of the next pause."""
    until: int = 0
    """Context length at which the pause ends."""
    place: int = 0
    """Of the method in use among all."""

    def observe(
        self, drafted: int, accepted: int, length: int, methods: Sequence[DraftMethod]
    ) -> DraftMethod | None:
        """Of ``drafted`` tokens so many were right, at a context of ``length`` tokens. Returns the
        method that is dropped for it."""
        if drafted == 0:
            return None
        self.samples += drafted
        weight = min(1.0, max(drafted * _WEIGHT, drafted / self.samples))
        gain = accepted - STEP_COST - ROW_COST * drafted
        self.mean += weight * (gain - self.mean)
        if self.samples < SAMPLES or self.mean >= 0:
            return None
        dropped = methods[self.place]
        self.samples, self.mean = 0, 0.0
        if self.place + 1 < len(methods):
            self.place += 1
        else:
            self.until, self.tokens = length + self.tokens, 2 * self.tokens
        return dropped

    def method(self, length: int, methods: Sequence[DraftMethod]) -> DraftMethod | None:
        """What drafts for the step that makes the context ``length`` tokens long, if anything."""
        return methods[self.place] if length >= self.until else None
