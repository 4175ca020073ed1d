"""Why a role has the pods that it has."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """One word for metrics and events; :class:`RoleDecision` has the sentence."""

    LOAD = "Load"
    QUEUE = "Queue"
    EXPORT_LINK = "ExportLink"
    FETCH_LINK = "FetchLink"
    EXPORTS = "Exports"
    FAST_TIER = "FastTier"
    WITHIN_TOLERANCE = "WithinTolerance"
    WINDOW = "Window"
    STEP = "Step"
    BOUNDS = "Bounds"
    RATIO = "Ratio"
    BUDGET = "Budget"
    PENDING_TOO_LONG = "PendingTooLong"
    NO_DATA = "NoData"
