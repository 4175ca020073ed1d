"""Queries that select: an exponential mean of a request's last ones."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oasis_runtime.core.geometry import Geometry
from oasis_runtime.kernels.contract import F32, I32

WEIGHT = 0.5
"""Of the newest query. Measured over three tasks (bench/lookahead.py, ``*_raw``): in a fast tier of
one budget less than half of the pages move, and 0.1 to 0.2 points more of the mass is attended to.
Queries of neighbouring tokens differ by their content, which the next token does not share, and by
one position."""


class QueryMeans:
    """Of every lane. A request's mean begins with its first query in a lane."""

    def __init__(self, lanes: int, geometry: Geometry, weight: float) -> None:
        """``weight``: 1 takes each query as it is."""
        g = geometry
        self._weight = np.float32(weight)
        self._mean = np.zeros((g.layers, lanes, g.heads, g.group, g.dim), np.float32)

    def blend(self, layer: int, lanes: I32, fresh: npt.NDArray[np.bool_] | None, query: F32) -> F32:
        """The means [n, H, G, D] after the queries of that shape, valid until the next call.
        ``fresh``: [n], lanes that hold another request's; None where none does."""
        if self._weight == 1:
            return query
        mean = self._mean[layer]
        if fresh is not None:
            mean[lanes[fresh]] = query[fresh]
        if len(lanes) == 1:  # in place, which is most of the cost of a small model's step
            one: F32 = mean[lanes[0] : lanes[0] + 1]
            one += self._weight * (query - one)
            return one
        many: F32 = mean[lanes]
        many += self._weight * (query - many)
        mean[lanes] = many
        return many
