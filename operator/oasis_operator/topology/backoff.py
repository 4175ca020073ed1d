"""When to try again after a kubelet refused pods for their topology.

A refused pod is Failed at once, and its ReplicaSet makes the next one as fast: without a pause
some hundred a minute. The refused pods stay in the cluster, so their times of creation are all the
memory that a growing pause needs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from datetime import datetime, timedelta

TOPOLOGY_AFFINITY_ERROR = "TopologyAffinityError"
"""Reason of the pod; KEP-693."""
FIRST_PAUSE = timedelta(seconds=20)
LONGEST_PAUSE = timedelta(minutes=10)
FORGOTTEN = timedelta(hours=1)
SAME_ROUND = timedelta(seconds=10)
"""Refusals closer together belong to one try of a role's pods."""


def retry_at(refused: Iterable[datetime], now: datetime) -> datetime | None:
    """The end of the pause; ``None`` when there is none, or it is over.

    Args:
        refused: when each refused pod was created.
        now: the time to judge at.
    """
    recent = sorted(when for when in refused if now - when < FORGOTTEN)
    if not recent:
        return None
    rounds = 1 + sum(later - earlier > SAME_ROUND for earlier, later in itertools.pairwise(recent))
    # The exponent is bounded, for a timedelta is.
    pause = min(FIRST_PAUSE * 2 ** min(rounds - 1, 10), LONGEST_PAUSE)
    end = recent[-1] + pause
    return end if end > now else None
