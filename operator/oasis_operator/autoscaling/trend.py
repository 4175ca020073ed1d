"""Where a load is going, from what was seen in the last minutes."""

from __future__ import annotations

from collections.abc import Callable

from oasis_operator.autoscaling.history import RoleHistory, Sample

TREND_SECONDS = 180.0
"""Long enough for single requests not to look like a trend."""
LEAD_SECONDS = 120.0
"""How far to look ahead: a pod that is asked for now serves after its start, and rates over a
minute tell of half a minute ago."""
MOST_RISE = 0.3
"""Of the load. What looks steeper is a step, which is over when it is seen."""
RATE_SECONDS = 60.0
"""The window of the rates that are asked for, so that both tell of the same time."""


def rise(history: RoleHistory, now: float, load: float) -> float:
    """What ``load`` will have gained when pods asked for now serve; never negative, because a
    forecast of less takes pods away that may be needed in between."""
    slope = _slope(history, now, TREND_SECONDS, load, lambda s: s.load)
    return min(max(0.0, LEAD_SECONDS * slope), MOST_RISE * load)


def queue_growth(history: RoleHistory, now: float, requests: float) -> float:
    """Requests a second by which arrivals exceed what is served, negative while a queue drains."""
    return _slope(history, now, RATE_SECONDS, requests, lambda s: s.requests)


def _slope(
    history: RoleHistory,
    now: float,
    seconds: float,
    value: float,
    of: Callable[[Sample], float],
) -> float:
    """Least squares over the samples of the last ``seconds`` and the value now, a second; 0 until
    they reach back half as far."""
    points = [(s.at - now, of(s)) for s in history.since(now - seconds)] + [(0.0, value)]
    if points[0][0] > -seconds / 2:
        return 0.0
    mean_at = sum(at for at, _ in points) / len(points)
    mean = sum(found for _, found in points) / len(points)
    spread = sum((at - mean_at) ** 2 for at, _ in points)
    return sum((at - mean_at) * (found - mean) for at, found in points) / spread
