"""How many pods the roles of an OasisDeployment have, where ``spec.autoscaling`` is there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.autoscaling.decide import decide
from oasis_operator.autoscaling.history import History
from oasis_operator.cluster.queue import Key
from oasis_operator.desired.metadata import Component
from oasis_operator.metrics import OperatorMetrics
from oasis_operator.reconcile.conditions import Draft
from oasis_operator.reconcile.decisions import Decision
from oasis_operator.reconcile.observed import Observed
from oasis_operator.reconcile.scaling import (
    Change,
    changes,
    external_condition,
    external_replicas,
    live_replicas,
    replicas_decided,
    role_pods,
    scaling_condition,
    unmeasured_condition,
)
from oasis_operator.reconcile.scaling_spec import (
    Replicas,
    replicas_of,
    scaling_spec,
    with_replicas,
    within_bounds,
)
from oasis_operator.signals.fleet import fleet_of
from oasis_operator.signals.prometheus import NoSignals, Prometheus

DECIDE_SECONDS = 15.0
"""Between two decisions, as a HorizontalPodAutoscaler."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Scaled:
    """``od`` has the decided replicas, as if the user had written them."""

    od: OasisDeployment
    condition: Draft | None = None
    told: tuple[Decision, ...] = ()
    again_seconds: float | None = None
    """When to look again; ``None``: nothing is scaled."""


@dataclass(frozen=True)
class _Memory:
    """Of one OasisDeployment. Lost with the process: the Deployments have the replicas."""

    uid: str
    revision: str
    history: History
    replicas: Replicas
    decided_at: datetime
    condition: Draft


class Scaler:
    """Asks Prometheus and decides, at most once a period for each OasisDeployment."""

    def __init__(
        self,
        prometheus: Prometheus,
        metrics: OperatorMetrics,
        period_seconds: float = DECIDE_SECONDS,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._prometheus = prometheus
        self._metrics = metrics
        self._period = period_seconds
        self._now = now
        self._memories: dict[Key, _Memory] = {}
        self._told: set[Key] = set()
        """Those that metrics tell of."""

    def forget(self, key: Key) -> None:
        """The OasisDeployment is gone, or is not scaled any more."""
        self._memories.pop(key, None)
        if key in self._told:
            self._told.remove(key)
            self._metrics.scales_no_more(*key)

    async def scaled(self, key: Key, od: OasisDeployment, observed: Observed) -> Scaled:
        """The spec with the replicas that the load asks for. Never raises for want of data."""
        scaling = od.spec.autoscaling
        if scaling is None:
            self.forget(key)
            return Scaled(od)
        if scaling.owner == "external":
            self.forget(key)
            return Scaled(with_replicas(od, external_replicas(od, observed)), external_condition())
        spec, revision, now = scaling_spec(od, scaling), observed.selected(), self._now()
        known = self._known(key, od, revision)
        if known is None:
            self._told.add(key)
            for component in replicas_of(od):
                self._metrics.scales(*key, component.value)
        if revision is None:
            start = within_bounds(replicas_of(od), spec)
            return Scaled(with_replicas(od, start), again_seconds=self._period)
        if known is not None and (age := (now - known.decided_at).total_seconds()) < self._period:
            replicas = within_bounds(known.replicas, spec)
            return Scaled(
                with_replicas(od, replicas), known.condition, again_seconds=self._period - age
            )
        before = known.replicas if known else live_replicas(od, observed, revision)
        history = known.history if known else History()
        numbers = await self._prometheus.fleet(od, revision)
        if isinstance(numbers, NoSignals):
            after = within_bounds(before, spec)
            condition, told = unmeasured_condition(numbers), tuple[Change, ...]()
        else:
            pods = {
                component: role_pods(observed, revision, component, count, now)
                for component, count in before.items()
            }
            fleet = fleet_of(numbers, pods[Component.DECODE], pods.get(Component.PREFILL))
            decision = decide(fleet, spec, history, now.timestamp())
            after, history = replicas_decided(decision), decision.history
            condition, told = scaling_condition(decision), changes(decision, before)
        self._memories[key] = _Memory(od.uid, revision, history, after, now, condition)
        self._publish(key, after, told)
        return Scaled(
            with_replicas(od, after),
            condition,
            tuple(change.told for change in told),
            self._period,
        )

    def _known(self, key: Key, od: OasisDeployment, revision: str | None) -> _Memory | None:
        """Another revision is another fleet, and another resource of the same name another one."""
        known = self._memories.get(key)
        if known is not None and (known.uid, known.revision) != (od.uid, revision):
            del self._memories[key]
            for component in known.replicas.keys() - replicas_of(od).keys():
                self._metrics.desired_replicas.remove(*key, component.value)
            return None
        return known

    def _publish(self, key: Key, replicas: Replicas, told: tuple[Change, ...]) -> None:
        for component, count in replicas.items():
            self._metrics.desired_replicas.labels(*key, component.value).set(count)
        for change in told:
            self._metrics.scale_decisions.labels(*key, change.component, change.reason).inc()
            log.info("%s", change.told.message)
