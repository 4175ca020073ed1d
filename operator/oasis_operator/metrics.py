"""The operator's own metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

OF = ("oasiskv_namespace", "oasiskv_deployment")
"""Labels of what is about one OasisDeployment; ``namespace`` is that of the operator's pod."""


class OperatorMetrics:
    """One registry, so that two operators in one process would not share counters."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.reconciles = Counter(
            "oasis_operator_reconciles",
            "Reconciles by result: ok, refused, terminating, throttled, conflict, unreachable, "
            "error.",
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

    def wrote(self, kind: str, verb: str) -> None:
        self.writes.labels(kind, verb).inc()
