"""Measured bandwidth of the wire."""

from __future__ import annotations

_KEEP = 0.9


class MovingRate:
    """Bytes per second over roughly the last ten samples, weighted by their duration.

    Sums decay, not rates: two WRITEs that finish in one look give one that seems too slow and
    one that seems too fast, and only their sum is right.
    """

    def __init__(self) -> None:
        self._bytes = 0.0
        self._seconds = 0.0

    def add(self, nbytes: int, seconds: float) -> None:
        """One transfer of ``nbytes`` in ``seconds``."""
        self._bytes = _KEEP * self._bytes + nbytes
        self._seconds = _KEEP * self._seconds + seconds

    @property
    def bytes_per_second(self) -> int:
        """0 before the first sample."""
        return round(self._bytes / self._seconds) if self._seconds else 0
