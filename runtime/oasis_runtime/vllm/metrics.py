"""The engine's metrics on vLLM's own ``/metrics``.

A worker's counts travel as a flat dictionary through the scheduler to the API server, which owns
the Prometheus registry: keys are metric names with their label values, values are increments of
counters, lists of observations, or values of gauges.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import Counter, Gauge, Histogram
from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
    PromMetric,
    PromMetricT,
)

from oasis_runtime.contract import Metric
from oasis_runtime.core.drafting import DRAFT_METHODS
from oasis_runtime.core.statistics import FALLBACK_REASONS, MODES, MOVES, Statistics
from oasis_runtime.serve.payload import EnginePayload
from oasis_runtime.vllm.options import engine_payload

_RECALL_BUCKETS = (0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 0.999, 1.0)
_ERROR_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0)


@dataclass(frozen=True)
class Series:
    """One family: what it is, its labels, and buckets where it is a histogram."""

    kind: type[PromMetric]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


SERIES: Mapping[Metric, Series] = {
    Metric.PAGES_SELECTED: Series(Counter, "Pages that selections asked for."),
    Metric.PAGES_RESIDENT: Series(Counter, "Selected pages that were in the fast tier already."),
    Metric.PAGES_LATE: Series(Counter, "Selected pages that were left out because not there."),
    Metric.PAGES_FAILED: Series(Counter, "Pages that could not be copied to the fast tier."),
    Metric.PAGES_PREDICTED: Series(Counter, "Pages of predictions that could be compared."),
    Metric.PAGES_AGREED: Series(Counter, "Predicted pages that the token's own query selects."),
    Metric.MASS_RECALL: Series(
        Histogram,
        "Share of dense attention mass on the attended tokens, sampled.",
        buckets=_RECALL_BUCKETS,
    ),
    Metric.OUTPUT_ERROR: Series(
        Histogram, "Relative L2 error of attention outputs, sampled.", buckets=_ERROR_BUCKETS
    ),
    Metric.TIER_BYTES: Series(
        Counter, "Bytes moved between tiers.", ("source", "target", "reason")
    ),
    Metric.DENSE_TRANSFER_BYTES: Series(
        Counter, "Bytes that whole-prompt transfers of the same requests would have moved."
    ),
    Metric.STEPS: Series(Counter, "Decode steps of requests.", ("mode",)),
    Metric.FALLBACKS: Series(Counter, "Requests served densely.", ("reason",)),
    Metric.DRAFTS_DROPPED: Series(
        Counter, "Times that a request's drafts did not pay and were stopped.", ("method",)
    ),
    Metric.RESIDENT_BLOCKS_PER_HEAD: Series(
        Gauge, "Blocks in the fast tier, mean over layers and KV heads."
    ),
    Metric.FAST_SLOTS: Series(
        Gauge,
        "Pages of the fast tier; used ones stay after their request until the slot is needed.",
        ("state",),
    ),
    Metric.ESCALATED_HEADS: Series(
        Gauge, "KV heads with more than the budget for their low audited recall."
    ),
    Metric.PREFETCH_CAP: Series(Gauge, "Share of the budget that a step may load."),
    Metric.LINK_BANDWIDTH: Series(Gauge, "Measured bandwidth, -1 unknown.", ("link",)),
    Metric.LINK_ENABLED: Series(Gauge, "1 where the link may be used.", ("link",)),
    Metric.WAIT_SECONDS: Series(Counter, "Time that decode waited for copies."),
    Metric.EXPORTS: Series(Gauge, "Requests whose KV is kept for a decode engine."),
    Metric.EXPORT_OLDEST_SECONDS: Series(Gauge, "Age of the oldest of them."),
    Metric.LEASES_EXPIRED: Series(Counter, "Exports that nobody read to the end."),
    Metric.STALE_READS: Series(Counter, "Pages that came for what was gone, and were dropped."),
    Metric.REFUSED_TRANSFERS: Series(
        Counter, "Transfers that failed or were refused.", ("reason",)
    ),
    Metric.NUMA_ALIGNED: Series(Gauge, "1 aligned, 0 not, -1 unknown."),
}


LABEL_VALUES: Mapping[Metric, tuple[tuple[str, ...], ...]] = {
    Metric.TIER_BYTES: (*MOVES, ("host", "remote", "admission"), ("host", "remote", "demand")),
    Metric.STEPS: tuple((mode,) for mode in MODES),
    Metric.FALLBACKS: tuple((reason,) for reason in FALLBACK_REASONS),
    Metric.DRAFTS_DROPPED: tuple((method,) for method in DRAFT_METHODS),
    Metric.REFUSED_TRANSFERS: (("owner",), ("reader",), ("lost",)),
}
"""All that the labels of a counter can be. They are published as 0 from the start: of a series
that begins with its first count Prometheus never sees that count as an increase."""


@functools.cache
def key(metric: Metric, *labels: str) -> str:
    """Dictionary key of one series; a JSON list because keys must survive serialisation."""
    return json.dumps([metric.value, *labels])


class OasisStats(KVConnectorStats):
    """Increments and values of one interval, by :func:`key`."""

    def reset(self) -> None:
        self.data = {}

    def is_empty(self) -> bool:
        return not self.data

    def aggregate(self, other: KVConnectorStats) -> OasisStats:
        for name, value in other.data.items():
            kind = SERIES[Metric(json.loads(name)[0])].kind
            if name not in self.data or kind is Gauge:
                self.data[name] = value
            else:
                self.data[name] = self.data[name] + value
        return self

    def reduce(self) -> dict[str, int | float]:
        """The line that vLLM logs: totals, and means of observations."""
        line: dict[str, int | float] = {}
        for name, value in self.data.items():
            text = "/".join(json.loads(name))
            if isinstance(value, list):
                line[text] = round(sum(value) / max(1, len(value)), 4)
            else:
                line[text] = round(value, 4)
        return line


def engine_stats(stats: Statistics) -> dict[str, Any]:
    """The counters of one interval; families that did not move are left out."""
    single = {
        Metric.PAGES_SELECTED: stats.selected,
        Metric.PAGES_RESIDENT: stats.resident,
        Metric.PAGES_LATE: stats.late,
        Metric.PAGES_FAILED: stats.failed,
        Metric.PAGES_PREDICTED: stats.compared,
        Metric.PAGES_AGREED: stats.agreed,
        Metric.DENSE_TRANSFER_BYTES: stats.dense_transfer_bytes,
        Metric.STALE_READS: stats.stale,
        Metric.WAIT_SECONDS: stats.wait_seconds,
        Metric.MASS_RECALL: stats.recalls,
        Metric.OUTPUT_ERROR: stats.errors,
    }
    data: dict[str, Any] = {key(metric): value for metric, value in single.items() if value}
    data |= {key(Metric.STEPS, mode): n for mode, n in stats.steps.items() if n}
    data |= {key(Metric.FALLBACKS, reason): n for reason, n in stats.fallbacks.items()}
    data |= {key(Metric.DRAFTS_DROPPED, method): n for method, n in stats.drafts_dropped.items()}
    data |= {key(Metric.TIER_BYTES, *move): n for move, n in stats.moved_bytes.items() if n}
    return data


def _measured_at_start(payload: EnginePayload) -> dict[str, Any]:
    """Gauges that are known before the first request."""
    data: dict[str, Any] = {key(Metric.NUMA_ALIGNED): payload.numa.metric}
    for link in (payload.links.host_fast, payload.links.network):
        data[key(Metric.LINK_BANDWIDTH, link.name)] = link.bytes_per_second
        data[key(Metric.LINK_ENABLED, link.name)] = int(link.enabled)
    return data


class OasisPromMetrics(KVConnectorPromMetrics):
    """Registers :data:`SERIES` and records intervals in them."""

    def __init__(
        self,
        vllm_config: VllmConfig,
        metric_types: dict[type[PromMetric], type[PromMetricT]],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._families: dict[str, Any] = {}
        for metric, series in SERIES.items():
            options: dict[str, Any] = {"labelnames": [*labelnames, *series.labels]}
            if series.buckets:
                options["buckets"] = series.buckets
            make = metric_types[series.kind]
            self._families[metric.value] = make(metric.value, series.help, **options)
            own = LABEL_VALUES.get(metric, ()) if series.labels else ((),)
            for values in per_engine_labelvalues.values():
                for labels in own:
                    self._families[metric.value].labels(*values, *labels)
        payload = engine_payload(vllm_config)
        if payload is not None:
            for engine in per_engine_labelvalues:
                self.observe(_measured_at_start(payload), engine)

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for name, value in transfer_stats_data.items():
            family, *labels = json.loads(name)
            series = SERIES[Metric(family)]
            metric = self._families[family].labels(
                *self.per_engine_labelvalues[engine_idx], *labels
            )
            if series.kind is Counter:
                metric.inc(value)
            elif series.kind is Gauge:
                metric.set(value)
            else:
                for observation in value:
                    metric.observe(observation)
