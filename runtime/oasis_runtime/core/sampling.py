"""In which order layers and heads are sampled, so that a few samples tell about all of them."""

from __future__ import annotations

import math

_GOLDEN = (math.sqrt(5) - 1) / 2


class HeadWalk:
    """Visits every (layer, head) once before any again; neighbours in the walk are far apart.

    Heads of the first layers attend to much more of a context than later ones, so a walk in their
    order would say of a short answer that it recalls little. Multiples of the golden ratio, taken
    modulo 1, leave no large gap at any time (Weyl sequence); a round visits the heads in the order
    of such numbers, and the next round goes on with the numbers that follow.
    """

    def __init__(self, layers: int, heads: int) -> None:
        self._heads = heads
        self._pages = layers * heads
        self._taken = 0
        self._round: list[int] = []

    def take(self) -> tuple[int, int]:
        """Layer and head of the next sample."""
        at = self._taken % self._pages
        if at == 0:
            self._round = self._ranks()
        self._taken += 1
        return divmod(self._round[at], self._heads)

    def _ranks(self) -> list[int]:
        """Of the round's numbers among each other, in their order."""
        numbers = [(self._taken + k + 1) * _GOLDEN % 1 for k in range(self._pages)]
        ranks = [0] * self._pages
        for rank, k in enumerate(sorted(range(self._pages), key=numbers.__getitem__)):
            ranks[k] = rank
        return ranks
