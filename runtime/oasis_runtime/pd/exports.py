"""What an owner offers, and until when: exports with their leases."""

from __future__ import annotations

from collections.abc import Callable

from oasis_runtime.pd import protocol
from oasis_runtime.pd.counters import OwnerTally
from oasis_runtime.pd.lease import Clock, LeaseTable
from oasis_runtime.pd.types import Ended, EndReason, Export


class ExportBook:
    """Exports by request id. Reports each end exactly once through ``ended``."""

    def __init__(
        self,
        lease_seconds: float,
        clock: Clock,
        ended: Callable[[Ended], None],
        tally: OwnerTally,
    ) -> None:
        self._leases = LeaseTable(lease_seconds, clock)
        self._exports: dict[str, Export] = {}
        self._ended = ended
        self._tally = tally

    def offer(self, export: Export) -> None:
        """Raises ValueError while the request has an export."""
        self._leases.grant(export.request_id, export.generation)
        self._exports[export.request_id] = export
        self._tally.offered += 1

    def withdraw(self, request_id: str) -> None:
        export = self._exports.get(request_id)
        if export is not None and self._leases.end(request_id, export.generation):
            self._tally.withdrawn += 1
            self._end(request_id, EndReason.WITHDRAWN)

    def release(self, holding: protocol.Holding) -> None:
        if self._leases.end(holding.request, holding.generation):
            self._tally.released += 1
            self._end(holding.request, EndReason.RELEASED)

    def expire(self) -> None:
        """Ends all exports whose lease ran out."""
        for request_id, _ in self._leases.expire():
            self._tally.expired += 1
            self._end(request_id, EndReason.EXPIRED)

    def _end(self, request_id: str, reason: EndReason) -> None:
        export = self._exports.pop(request_id)
        self._ended(Ended(request_id, export.generation, reason))

    def knows(self, request_id: str) -> bool:
        """Whether the request has an export, of whatever generation."""
        return request_id in self._exports

    def extend(self, holding: protocol.Holding) -> bool:
        """Renews the lease; False when the export must not be read (any more)."""
        return self._leases.extend(holding.request, holding.generation)

    def refusal(self, holding: protocol.Holding) -> str | None:
        """Why the export must not be read now; None when it may be."""
        return self._leases.refusal(holding.request, holding.generation)

    def read(self, holding: protocol.Holding) -> Export:
        """The export, which ``refusal`` has just allowed to read."""
        return self._exports[holding.request]
