"""Objects that somebody else writes again and again: undone at once at first, then ever later.

Two controllers that both know better would otherwise write as fast as the API server answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from oasis_operator.cluster.queue import Key
from oasis_operator.reconcile.observed import ObjectKey

AT_ONCE = 5
"""So many changes in a row are undone without a pause: a person has edited something."""
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
CALM_SECONDS = 2 * LONGEST_PAUSE_SECONDS
"""After such a time without a change by others all is forgotten."""


@dataclass(frozen=True)
class _Contest:
    times: int
    last: float


class Contests:
    """Lost with the process, which then begins to count anew."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._of: dict[Key, dict[ObjectKey, _Contest]] = {}

    def undone(self, owner: Key, name: ObjectKey) -> bool:
        """What others wrote into an object was taken back; whether this has become a contest."""
        contests = self._of.setdefault(owner, {})
        now = self._clock()
        known = contests.get(name)
        fresh = known is None or now - known.last > CALM_SECONDS
        contests[name] = _Contest(1 if known is None or fresh else known.times + 1, now)
        return contests[name].times >= AT_ONCE

    def pause(self, owner: Key, name: ObjectKey) -> float:
        """Seconds for which what others wrote into an object is to stay as it is."""
        known = self._of.get(owner, {}).get(name)
        if known is None or known.times < AT_ONCE:
            return 0.0
        wait = FIRST_PAUSE_SECONDS * 2.0 ** min(known.times - AT_ONCE, 16)
        return max(0.0, known.last + min(wait, LONGEST_PAUSE_SECONDS) - self._clock())

    def forget(self, owner: Key) -> None:
        """The OasisDeployment is gone."""
        self._of.pop(owner, None)
