"""In which order layers and heads are sampled, so that a few samples tell about all of them."""

from __future__ import annotations

import math

_GOLDEN = (math.sqrt(5) - 1) / 2


class HeadWalk:
    """Visits every (layer, head) once before any again; neighbours in the walk are far apart.

    Heads of the first layers attend to much more of a context than later ones, so a walk in their
    order would say of a short answer that it recalls little. Steps of the golden ratio of the
    circle leave no large gap at any time (Weyl sequence).
    """

    def __init__(self, layers: int, heads: int) -> None:
        self._heads = heads
        self._pages = layers * heads
        self._stride = _coprime_near(round(self._pages * _GOLDEN), self._pages)
        self._at = self._pages // 2

    def take(self) -> tuple[int, int]:
        """Layer and head of the next sample."""
        self._at = (self._at + self._stride) % self._pages
        return divmod(self._at, self._heads)


def _coprime_near(wanted: int, n: int) -> int:
    return min(
        (k for k in range(1, max(2, n)) if math.gcd(k, n) == 1), key=lambda k: abs(k - wanted)
    )
