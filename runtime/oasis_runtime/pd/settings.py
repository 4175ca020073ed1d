"""Sizes and deadlines of the transfer."""

from __future__ import annotations

from dataclasses import dataclass

from oasis_runtime.contract import TransferConfig


@dataclass(frozen=True, slots=True)
class TransferSettings:
    """Settings of one exporter or importer; seconds and bytes.

    Port 0 lets the system choose (``Exporter.port`` says which). Raises ValueError when the
    landing buffer cannot hold a chunk.
    """

    host: str
    port: int
    lease_seconds: float
    heartbeat_seconds: float
    landing_bytes: int
    operation_seconds: float = 10.0
    """Longest from sending a request to its peer until the answer, or from posting a WRITE until
    it is done. After that the peer counts as gone."""
    connect_seconds: float = 5.0
    """Longest from the first packet to a peer until its welcome."""
    offer_grace_seconds: float = 2.0
    """How long an owner keeps an admission that came before the export was offered: the router
    may be faster than the engine step that offers it."""
    chunk_bytes: int = 4 << 20
    """Largest single WRITE. Small enough to overlap packing, wire and unpacking."""
    window: int = 4
    """WRITEs that a reader has outstanding at one owner."""
    queue_limit: int = 1024
    """Fetches that wait for landing memory before ``fetch`` says no."""
    most_pages: int = 1 << 24
    """Pages of the reader's host tier: a peer that announces more is not one of ours."""

    def __post_init__(self) -> None:
        if self.chunk_bytes > self.landing_bytes // 4096 * 4096:
            raise ValueError(
                f"a landing buffer of {self.landing_bytes} bytes cannot hold a chunk of "
                f"{self.chunk_bytes}; raise transfer.landing_bytes"
            )

    @classmethod
    def from_config(cls, config: TransferConfig, rank: int = 0) -> TransferSettings:
        """Settings of tensor-parallel rank ``rank``, which listens on its own port."""
        landing = config.landing_bytes
        return cls(
            host=config.host,
            port=config.port + rank,
            lease_seconds=config.lease_seconds,
            heartbeat_seconds=config.heartbeat_seconds,
            landing_bytes=landing,
            operation_seconds=min(10.0, config.lease_seconds),
            connect_seconds=min(5.0, config.lease_seconds),
            offer_grace_seconds=min(2.0, config.lease_seconds / 4),
            chunk_bytes=min(4 << 20, landing // 4),
        )
