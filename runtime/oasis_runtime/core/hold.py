"""When a request that recalls too little is decoded densely, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

SAMPLES = 6
"""Audits before a request is judged: heads differ too much for fewer."""
FIRST_TOKENS = 128
"""Length of the first hold. Each one after is twice as long as the one before: a request that needs
dense attention ends up there, and one that had a bad passage comes back."""
_WEIGHT = 0.2


@dataclass
class RecallHold:
    """Keeps a request dense after its audited recall was low.

    A dense request is not audited, so nothing tells when sparsity would do again: it is tried
    again after a while.
    """

    mean: float = 1.0
    """Exponentially weighted recall of the audits since the last hold."""
    samples: int = 0
    tokens: int = FIRST_TOKENS
    """Length of the next hold."""
    until: int = 0
    """Context length at which the hold ends."""

    def observe(self, recall: float, length: int, least: float) -> None:
        """An audit at a context of ``length`` tokens; under a mean of ``least`` the hold begins."""
        self.samples += 1
        weight = max(_WEIGHT, 1 / self.samples)
        self.mean += weight * (recall - self.mean)
        if self.samples >= SAMPLES and self.mean < least:
            self.until = length + self.tokens
            self.tokens, self.samples, self.mean = 2 * self.tokens, 0, 1.0

    def holds(self, length: int) -> bool:
        """Whether the step that makes the context ``length`` tokens long is to be dense."""
        return length < self.until
