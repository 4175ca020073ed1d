"""The operator's own metrics."""

from __future__ import annotations

from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from oasis_operator.autoscaling.reason import Reason
from oasis_operator.cluster.kinds import (
    CHILD_BY_KIND,
    EVENT,
    LEADER_WORKER_SET,
    LEASE,
    OASIS_DEPLOYMENT,
    OASIS_ROLE,
)

OF = ("oasiskv_namespace", "oasiskv_deployment")
"""Labels of what is about one OasisDeployment; ``namespace`` is that of the operator's pod."""

Result = Literal["ok", "refused", "terminating", "throttled", "conflict", "unreachable", "error"]
"""How a reconcile ends."""
WRITES = (
    *((kind, verb) for kind in CHILD_BY_KIND for verb in ("apply", "take", "delete")),
    ("Deployment", "scale"),
    (LEADER_WORKER_SET.kind, "scale"),
    (OASIS_ROLE.kind, "scale"),
    (OASIS_DEPLOYMENT.kind, "status"),
    (OASIS_ROLE.kind, "status"),
    (EVENT.kind, "create"),
    (EVENT.kind, "count"),
    (LEASE.kind, "create"),
)
"""Kinds and verbs of what the operator writes."""


class OperatorMetrics:
    """One registry, so that two operators in one process would not share counters.

    What labels can be is published as 0 from the start: of a series that begins with its first
    count Prometheus never sees that count as an increase.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.reconciles = Counter(
            "oasis_operator_reconciles",
            f"Reconciles by result: {', '.join(get_args(Result))}.",
            ["result"],
            registry=self.registry,
        )
        self.reconcile_seconds = Histogram(
            "oasis_operator_reconcile_seconds", "Duration of a reconcile.", registry=self.registry
        )
        self.writes = Counter(
            "oasis_operator_writes",
            "Requests to the API server that write, by kind and verb.",
            ["kind", "verb"],
            registry=self.registry,
        )
        self.throttled = Counter(
            "oasis_operator_throttled",
            "Requests that the API server answered with 429.",
            registry=self.registry,
        )
        self.leader = Gauge(
            "oasis_operator_leader", "1 if this replica leads.", registry=self.registry
        )
        self.queue_depth = Gauge(
            "oasis_operator_queue_depth",
            "OasisDeployments that wait for a reconcile.",
            registry=self.registry,
        )
        self.resyncs = Counter(
            "oasis_operator_resyncs",
            "Times that every OasisDeployment was looked at again.",
            registry=self.registry,
        )

        self.desired_replicas = Gauge(
            "oasis_desired_replicas",
            "Pods that scaling has decided on, by OasisDeployment and role.",
            [*OF, "role"],
            registry=self.registry,
        )
        self.scale_decisions = Counter(
            "oasis_scale_decisions",
            "Decisions about scaling by OasisDeployment, role and reason.",
            [*OF, "role", "reason"],
            registry=self.registry,
        )

        for result in get_args(Result):
            self.reconciles.labels(result)
        for kind, verb in WRITES:
            self.writes.labels(kind, verb)

    def scales(self, namespace: str, name: str, role: str) -> None:
        """From now on decisions about this role may be counted."""
        for reason in Reason:
            self.scale_decisions.labels(namespace, name, role, reason)

    def scales_no_more(self, namespace: str, name: str) -> None:
        """It is gone, or nobody decides about it: there is nothing to tell of any of its roles."""
        for metric in (self.desired_replicas, self.scale_decisions):
            metric.remove_by_labels({OF[0]: namespace, OF[1]: name})

    def wrote(self, kind: str, verb: str) -> None:
        self.writes.labels(kind, verb).inc()
