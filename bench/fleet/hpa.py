"""The HorizontalPodAutoscaler of Kubernetes 1.34 (``pkg/controller/podautoscaler``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.fleet.view import FleetView, PodView, Replicas, RoleView

TOLERANCE = 0.1
DOWN_SECONDS = 300.0
"""Stabilisation of scaling down; there is none of scaling up."""
STEP_SECONDS = 15.0
STEP_PERCENT, STEP_PODS = 100, 4
"""Most that is added in one step: the larger of the two."""

Metric = Callable[[PodView], float]


def wanted_replicas(values: Sequence[float], role: RoleView, target: float) -> int:
    """``GetRawReplicas``: pods that are not ready are counted as idle when scaling up."""
    if not values:
        return role.replicas
    unready = role.replicas - len(values)
    ratio = sum(values) / len(values) / target
    if unready <= 0 or ratio <= 1:
        if abs(ratio - 1) <= TOLERANCE:
            return role.replicas
        return math.ceil(ratio * len(values))
    every = len(values) + unready
    ratio = sum(values) / every / target
    if abs(ratio - 1) <= TOLERANCE or ratio < 1:
        return role.replicas
    return max(role.replicas, math.ceil(ratio * every))


@dataclass
class Hpa:
    """One role. ``target`` is the wanted mean of the metric over its pods."""

    metric: Metric
    target: float
    most: int
    least: int = 1
    _wanted: list[tuple[float, int]] = field(default_factory=list)
    _asked: list[tuple[float, int]] = field(default_factory=list)

    def replicas(self, role: RoleView, now: float) -> int:
        wanted = wanted_replicas([self.metric(pod) for pod in role.pods], role, self.target)
        wanted = min(max(wanted, self.least), self.most)
        self._wanted = [item for item in self._wanted if item[0] > now - DOWN_SECONDS]
        if not self._wanted:
            self._wanted.append((now, role.replicas))
        self._wanted.append((now, wanted))
        stable = max(count for _, count in self._wanted) if wanted < role.replicas else wanted
        stable = min(stable, role.replicas) if wanted < role.replicas else stable
        self._asked = [item for item in self._asked if item[0] > now - STEP_SECONDS]
        start = min([role.replicas, *(count for _, count in self._asked)])
        limit = max(start * (100 + STEP_PERCENT) // 100, start + STEP_PODS)
        self._asked.append((now, role.replicas))
        return min(stable, limit)


@dataclass
class Pair:
    """Two of them, which know nothing of each other."""

    prefill: Hpa
    decode: Hpa

    def replicas(self, view: FleetView, now: float) -> Replicas:
        return Replicas(
            self.prefill.replicas(view.prefill, now), self.decode.replicas(view.decode, now)
        )
