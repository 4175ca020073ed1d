"""Leases on exports, at both ends. Pure: the clock is passed in, nothing waits.

An owner's lease runs from the *receipt* of the reader's last message, a reader counts from the
*sending* of the last message that was answered. So, as long as clocks run at the same rate up to
the margin, a reader gives up before its owner frees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]
"""Seconds; monotonic."""


@dataclass(slots=True)
class _Lease:
    generation: int
    expires: float


class LeaseTable:
    """The owner's leases, by request id."""

    def __init__(self, lease_seconds: float, clock: Clock) -> None:
        self._seconds = lease_seconds
        self._clock = clock
        self._leases: dict[str, _Lease] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def grant(self, request_id: str, generation: int) -> None:
        """Starts a lease. Raises ValueError when the request already has one."""
        if request_id in self._leases:
            raise ValueError(f"request {request_id} is already exported")
        self._leases[request_id] = _Lease(generation, self._clock() + self._seconds)

    def refusal(self, request_id: str, generation: int) -> str | None:
        """Why this export must not be read now; None when it may be."""
        lease = self._leases.get(request_id)
        if lease is None:
            return f"there is no export of request {request_id}"
        if lease.generation != generation:
            return (
                f"the export of request {request_id} is of generation {lease.generation}, "
                f"not {generation}"
            )
        if self._clock() >= lease.expires:
            return f"the lease of request {request_id} has expired"
        return None

    def extend(self, request_id: str, generation: int) -> bool:
        """Lets the lease run its full length again; False when it may not be read any more."""
        if self.refusal(request_id, generation) is not None:
            return False
        self._leases[request_id].expires = self._clock() + self._seconds
        return True

    def end(self, request_id: str, generation: int) -> bool:
        """Ends a lease; False when there is none of this generation."""
        lease = self._leases.get(request_id)
        if lease is None or lease.generation != generation:
            return False
        del self._leases[request_id]
        return True

    def expire(self) -> list[tuple[str, int]]:
        """Ends all leases that ran out; their (request id, generation)."""
        now = self._clock()
        over = [(key, e.generation) for key, e in self._leases.items() if now >= e.expires]
        for key, _ in over:
            del self._leases[key]
        return over


class HeldLeases:
    """The reader's view of the leases that it holds at one owner."""

    def __init__(self, lease_seconds: float, margin_seconds: float, clock: Clock) -> None:
        self._seconds = lease_seconds - margin_seconds
        self._clock = clock
        self._since: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._since)

    def hold(self, request_id: str, sent: float) -> None:
        """Holds a lease that was asked for at ``sent`` and answered."""
        self._since[request_id] = max(sent, self._since.get(request_id, sent))

    def acknowledge(self, request_id: str, sent: float) -> None:
        """A message about this request, sent at ``sent``, was answered. Ignored after a drop."""
        if request_id in self._since:
            self.hold(request_id, sent)

    def drop(self, request_id: str) -> None:
        self._since.pop(request_id, None)

    def lost(self) -> list[str]:
        """Requests whose owner may have freed their pages: no answer for too long."""
        now = self._clock()
        return [key for key, since in self._since.items() if now >= since + self._seconds]
