"""What happened, as plain integers since the start; snapshots are frozen copies."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class OwnerTally:
    """Written by the transfer thread only."""

    admission_bytes: int = 0
    demand_bytes: int = 0
    offered: int = 0
    released: int = 0
    expired: int = 0
    withdrawn: int = 0
    refused: int = 0
    malformed: int = 0
    failed_writes: int = 0
    readers_lost: int = 0


@dataclass(frozen=True, slots=True)
class OwnerCounters:
    """Of an exporter. Bytes are those whose WRITE was acknowledged, by reason; ``refused``
    counts answers no (an item of a fetch counts as one); ``malformed`` messages were dropped;
    ``readers_lost`` were disconnected for silence or a failed or overdue WRITE."""

    admission_bytes: int
    demand_bytes: int
    offered: int
    released: int
    expired: int
    withdrawn: int
    refused: int
    malformed: int
    failed_writes: int
    readers_lost: int
    readers: int
    writes_under_way: int


@dataclass(slots=True)
class ReaderTally:
    """Written by the transfer thread only."""

    admission_bytes: int = 0
    demand_bytes: int = 0
    stale_pages: int = 0
    abandoned_pages: int = 0
    refused: int = 0
    lost: int = 0
    peers_lost: int = 0
    malformed: int = 0
    round_trips: int = 0
    round_trip_us: int = 0
    bytes_per_second: int = 0


@dataclass(frozen=True, slots=True)
class ReaderCounters:
    """Of an importer.

    Bytes that landed for a living request, by reason. ``stale_pages`` landed after the lease of
    their generation was lost, ``abandoned_pages`` after their own engine had released the
    request; neither is handed out. ``round_trip_us`` is the sum over ``round_trips`` heartbeats.
    ``bytes_per_second`` is an average over the last large WRITEs (0 before the first).
    """

    admission_bytes: int
    demand_bytes: int
    stale_pages: int
    abandoned_pages: int
    refused: int
    lost: int
    peers_lost: int
    malformed: int
    round_trips: int
    round_trip_us: int
    bytes_per_second: int
    landing_used_bytes: int
    landing_quarantined_bytes: int
    requests: int
    peers: int
