"""What the engine counts; the names are the contract's, the publishing is the plugin's."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, get_args

from oasis_runtime.core.drafting import DraftMethod

MODES = ("sparse", "dense")
FallbackReason = Literal[
    "short_context",
    "mode",
    "low_recall",
    "copy_failed",
    "fast_tier_full",
    "no_selection",
    "prefill_role",
]
"""Why a request is decoded densely."""
FALLBACK_REASONS: tuple[FallbackReason, ...] = get_args(FallbackReason)
MOVES = (
    ("host", "fast", "pin"),
    ("host", "fast", "admission"),
    ("host", "fast", "prefetch"),
    ("remote", "host", "admission"),
    ("remote", "host", "demand"),
)
"""What the engine copies: from which tier, to which, why."""


@dataclass
class Statistics:
    """Counts since the last :meth:`take`, in pages unless the name says otherwise."""

    selected: int = 0
    resident: int = 0
    late: int = 0
    failed: int = 0
    compared: int = 0
    agreed: int = 0
    starved: int = 0
    capped: int = 0
    wait_seconds: float = 0.0
    steps: Counter[str] = field(default_factory=Counter)
    """Request steps by mode."""
    fallbacks: Counter[FallbackReason] = field(default_factory=Counter)
    """Requests served densely, by reason, once a request and reason."""
    drafts_dropped: Counter[DraftMethod] = field(default_factory=Counter)
    """Times that a request's drafting was stopped, by what had drafted."""
    moved_bytes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Bytes by (source tier, target tier, reason)."""
    dense_transfer_bytes: int = 0
    stale: int = 0
    recalls: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)

    def take(self) -> Statistics:
        """The counts so far; counting starts afresh."""
        taken = Statistics(**vars(self))
        vars(self).update(vars(Statistics()))
        return taken
