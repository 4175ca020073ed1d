"""What a decision is made from: the pods as the cluster has them, and what they report.

``None`` and NaN are the same everywhere: a number that should be there and is not. What is not
there by nature, such as the hit rate of an engine without a sparse step, is said by its
denominator.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeGuard

Number = float | None


def known(value: Number) -> TypeGuard[float]:
    """Whether there is a number."""
    return value is not None and math.isfinite(value)


@dataclass(frozen=True)
class Link:
    """One link of a pod, in bytes a second. A capacity that is not positive is not known."""

    used: Number
    capacity: Number

    @property
    def utilisation(self) -> float | None:
        """Share of the capacity in use; ``None`` where nobody knows the capacity."""
        if not known(self.used) or not known(self.capacity) or self.capacity <= 0:
            return None
        return self.used / self.capacity


@dataclass(frozen=True)
class Pod:
    """One ready pod. Rates are per second, means over the last minutes."""

    ready_seconds: float
    """How long it has been ready."""
    running: Number
    """Requests in the batch."""
    waiting: Number
    """Requests that wait for a place in it."""
    busy: Number
    """Share of the time in which it had a request running."""
    tokens: Number
    """Prompt tokens computed a second."""
    links: Mapping[str, Link] = field(default_factory=dict)


@dataclass(frozen=True)
class Latency:
    """A quantile, and how many observations a second it is made of."""

    seconds: Number
    rate: Number

    @property
    def value(self) -> float | None:
        """``None`` where nothing was observed, or the number is missing."""
        return self.seconds if known(self.seconds) and known(self.rate) else None


@dataclass(frozen=True)
class Ratio:
    """Part over whole, as rates or counts. A whole of zero: there was nothing to measure."""

    part: Number
    whole: Number

    @property
    def value(self) -> float | None:
        if not known(self.part) or not known(self.whole) or self.whole <= 0:
            return None
        return min(1.0, self.part / self.whole)


@dataclass(frozen=True)
class RoleSignals:
    """One role of the revision that serves."""

    replicas: int
    """Pods that its Deployment asks for."""
    pods: tuple[Pod, ...]
    """Its ready pods."""
    placed: int
    """Pods that found a node and run there: the ready ones, and those that load their model."""
    pending_seconds: float
    """How long the oldest of the others has waited for a node, an image or a volume; 0 without."""
    queue: Latency
    """Time between arrival and the start of the work."""
    latency: Latency
    """Time to first token of prefill pods, time per output token of decode pods."""

    @property
    def ready(self) -> int:
        return len(self.pods)


@dataclass(frozen=True)
class Fleet:
    """Both roles, and what concerns the way between them."""

    decode: RoleSignals
    prefill: RoleSignals | None
    """``None``: decode pods serve from prompt to end."""
    hit: Ratio
    """Selected pages that were resident."""
    dense: Ratio
    """Requests that fell back to dense decoding where it costs more, of all."""
    recall: Ratio
    """Attention mass recall: sum of the audits of the last minutes, and their number."""
    slots: Ratio
    """Used and all slots of the fast tiers of decode."""
    exports: Number = 0.0
    """Requests whose KV prefill keeps for decode; ends with the answer, not with its start."""
    export_seconds: Number = 0.0
    """Age of the oldest of them."""


def total(values: Iterable[Number]) -> float:
    """Sum of the numbers that are there."""
    return sum(value for value in values if known(value))
