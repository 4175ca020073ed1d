"""When audits say that answers are poor, for conditions and for scaling alike."""

from __future__ import annotations

from oasis_operator.autoscaling.measured import Ratio, known

LEAST_RECALL = 0.9
"""Mean attention mass recall under which answers count as poor."""
LEAST_AUDITS = 8
"""Audits that a mean is made of, at least. Each looks at one head of one layer, and heads differ
more than good answers do from poor ones; any eight reach every quarter of the layers."""
QUALITY_MEMORY_SECONDS = 3600.0
"""Without so many audits for so long nothing is known any more of how good answers are."""


def mean_recall(recall: Ratio) -> float | None:
    """The mean of the audits, given their sum and number; ``None`` while they are too few."""
    enough = known(recall.whole) and recall.whole >= LEAST_AUDITS
    return recall.value if enough else None
