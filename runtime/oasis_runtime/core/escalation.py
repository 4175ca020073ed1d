"""Which KV heads select more than the budget, by what audits found of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

LOW, HIGH = 0.8, 0.97
"""Share of the attention mass under which a head is escalated, and over which it is no more. A head
that doubling brings from the one to the other stays escalated: what lies between is the hysteresis.
"""
FACTOR = 2
"""Times the budget. Measured over three tasks (bench/lookahead.py): 1.13 times the pages, 2 points
more mass on average and 9 points at the 5th percentile."""
_WEIGHT = 0.25
"""Of the newest sample in a head's mean."""


class Escalation:
    """Heads of a model differ more than requests do, so what one request's audit finds counts for
    all. ``mean``: float64 [L, H], exponentially weighted recall, not a number before the first."""

    def __init__(self, layers: int, heads: int) -> None:
        self.mean = np.full((layers, heads), np.nan)
        self._escalated = np.zeros((layers, heads), bool)

    def observe(self, layer: int, head: int, recall: float) -> None:
        """An audit found that the head's attended tokens have this share of the mass."""
        old = self.mean[layer, head]
        mean = recall if np.isnan(old) else (1 - _WEIGHT) * old + _WEIGHT * recall
        self.mean[layer, head] = mean
        if mean < LOW:
            self._escalated[layer, head] = True
        elif mean > HIGH:
            self._escalated[layer, head] = False

    @property
    def count(self) -> int:
        """Escalated heads, over all layers."""
        return int(self._escalated.sum())

    @property
    def most(self) -> int:
        """Most escalated heads in one layer: what decides how many slots are needed."""
        return int(self._escalated.sum(axis=1).max())

    def boost(self) -> npt.NDArray[np.uint8]:
        """Times the budget that each head may select, [L, H]."""
        return np.where(self._escalated, FACTOR, 1).astype(np.uint8)
