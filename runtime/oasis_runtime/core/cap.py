"""The online cap on prefetch: what the link can hide behind a step."""

from __future__ import annotations

ETA = 0.8
"""Share of the measured bandwidth that is planned with."""
FLOOR = 0.02
"""A cap of nothing would never let the resident set move."""


def prefetch_cap(
    bytes_per_second: float, step_seconds: float, requests: int, budget_bytes: int
) -> float:
    """f* = eta * B_link * T_step / (N * K * kappa), within [FLOOR, 1].

    ``budget_bytes`` is K * kappa, the bytes of one request's budget over all layers and heads.
    Without a measurement (0) the cap is open: the first copies are the measurement.
    """
    if bytes_per_second <= 0 or step_seconds <= 0 or requests <= 0 or budget_bytes <= 0:
        return 1.0
    return min(1.0, max(FLOOR, ETA * bytes_per_second * step_seconds / (requests * budget_bytes)))
