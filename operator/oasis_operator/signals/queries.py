"""PromQL. Every query the operator asks is here.

Series are found by the labels ``namespace`` and ``pod``, which Prometheus' usual discovery of
pods (and a PodMonitor) sets. Ratios are made of counters summed over the pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.desired.metadata import Component, workload_name
from oasis_runtime.contract import Metric

WINDOW = "5m"
SCALING_WINDOW = "1m"
"""Of what scaling looks at: as short as scrapes every 15 s allow."""
GAUGE_WINDOW = "1m"
"""Of numbers of requests: an engine between two reports may show none of those it has."""
CAPACITY_WINDOW = "30m"
"""A link is measured by what crosses it, and shows its capacity only when it is busy."""
CHEAP_FALLBACKS = "short_context|no_selection"
"""Reasons to decode densely that cost little: a short context, or one step of a request. A mode
that was asked for is no fault, but costs as much as any other."""
QUEUE_TIME = "vllm:request_queue_time_seconds"
QUANTILE = 0.9
"""Of latencies, so that what one request in ten sees is what is looked at, and not the mean."""


@dataclass(frozen=True)
class Queries:
    """The queries about one OasisDeployment's serving revision."""

    resident_ratio: str
    late_ratio: str
    recall: RatioQueries
    steps_by_mode: str
    fallbacks_by_reason: str
    requests: str
    refused_transfers: str
    numa_by_pod: str
    enabled_links: str


def queries(od: OasisDeployment, revision: str) -> Queries:
    """About the pods of one revision: what others measured is not of those that serve."""
    return state_queries(
        f'namespace="{od.namespace}",pod=~"{od.name}-{revision}-(prefill|decode)-.+"',
        _pods(od, revision, Component.DECODE),
    )


def state_queries(engines: str, decodes: str) -> Queries:
    """About the pods that matchers of labels select: both roles, and decode alone."""

    def rate(metric: str, by: str = "", pods: str = engines) -> str:
        grouping = f" by ({by})" if by else ""
        return f"sum{grouping} (rate({metric}{{{pods}}}[{WINDOW}]))"

    # Prefill engines select too, to choose what they send, and nothing of that is ever resident.
    selected = rate(Metric.PAGES_SELECTED, pods=decodes)

    return Queries(
        resident_ratio=f"{rate(Metric.PAGES_RESIDENT, pods=decodes)} / {selected}",
        late_ratio=f"{rate(Metric.PAGES_LATE, pods=decodes)} / {selected}",
        recall=_audits(decodes),
        steps_by_mode=rate(Metric.STEPS, "mode", decodes),
        fallbacks_by_reason=rate(Metric.FALLBACKS, "reason", decodes),
        requests=rate(f"{QUEUE_TIME}_count", pods=decodes),
        refused_transfers=rate(Metric.REFUSED_TRANSFERS),
        numa_by_pod=f"min by (pod) ({Metric.NUMA_ALIGNED}{{{engines}}})",
        enabled_links=f"min by (link) ({Metric.LINK_ENABLED}{{{engines}}})",
    )


@dataclass(frozen=True)
class LinkQueries:
    """One link, bytes a second by pod."""

    used: str
    capacity: str


@dataclass(frozen=True)
class LatencyQueries:
    """A quantile, and how many observations a second it is made of."""

    seconds: str
    rate: str


@dataclass(frozen=True)
class RatioQueries:
    """The two parts of a ratio, to tell a share of nothing from a number that is missing."""

    part: str
    whole: str


@dataclass(frozen=True)
class RoleQueries:
    """What scaling asks about the pods of one role in one revision."""

    running: str
    """By pod, as the four after it."""
    waiting: str
    busy: str
    tokens: str
    links: Mapping[str, LinkQueries]
    queue: LatencyQueries
    """One answer for the role, as the next."""
    latency: LatencyQueries


@dataclass(frozen=True)
class FleetQueries:
    """What scaling asks about the fleet."""

    decode: RoleQueries
    prefill: RoleQueries
    hit: RatioQueries
    dense: RatioQueries
    recall: RatioQueries
    slots: RatioQueries
    exports: str
    export_seconds: str


def fleet_queries(od: OasisDeployment, revision: str) -> FleetQueries:
    """About the pods of one revision: the router sends to no others."""
    return scaling_queries(
        _pods(od, revision, Component.DECODE), _pods(od, revision, Component.PREFILL)
    )


def scaling_queries(decode: str, prefill: str) -> FleetQueries:
    """About the pods of both roles that matchers of labels select."""
    to_fast = f'{Metric.TIER_BYTES}{{{decode},target="fast"}}'
    from_remote = f'{Metric.TIER_BYTES}{{{decode},source="remote"}}'
    to_remote = f'{Metric.TIER_BYTES}{{{prefill},target="remote"}}'
    dense = f'{Metric.FALLBACKS}{{{decode},reason!~"{CHEAP_FALLBACKS}"}}'
    used = f'sum({Metric.FAST_SLOTS}{{{decode},state="used"}})'
    slots = f'sum({Metric.FAST_SLOTS}{{{decode},state="total"}})'
    return FleetQueries(
        decode=_role(
            decode,
            "vllm:inter_token_latency_seconds",
            {"network": from_remote, "host_fast": to_fast},
        ),
        prefill=_role(prefill, "vllm:time_to_first_token_seconds", {"network": to_remote}),
        hit=RatioQueries(
            _total(f"{Metric.PAGES_RESIDENT}{{{decode}}}"),
            _total(f"{Metric.PAGES_SELECTED}{{{decode}}}"),
        ),
        dense=RatioQueries(
            _or_zero(_total(dense), decode), _total(f"{QUEUE_TIME}_count{{{decode}}}")
        ),
        recall=_audits(decode),
        slots=RatioQueries(_or_zero(used, decode), _or_zero(slots, decode)),
        exports=f"sum({_mean(f'{Metric.EXPORTS}{{{prefill}}}')})",
        export_seconds=f"max({Metric.EXPORT_OLDEST_SECONDS}{{{prefill}}})",
    )


def _pods(od: OasisDeployment, revision: str, component: Component) -> str:
    return f'namespace="{od.namespace}",pod=~"{workload_name(od, revision, component)}-.+"'


def _role(pods: str, latency: str, links: Mapping[str, str]) -> RoleQueries:
    running = f"vllm:num_requests_running{{{pods}}}"
    computed = f'vllm:prompt_tokens_by_source_total{{{pods},source="local_compute"}}'
    return RoleQueries(
        running=f"sum by (pod) ({_mean(running)})",
        waiting=f"sum by (pod) ({_mean(f'vllm:num_requests_waiting{{{pods}}}')})",
        busy=f"max by (pod) (avg_over_time(({running} > bool 0)[{SCALING_WINDOW}:5s]))",
        tokens=_by_pod(computed, pods),
        links={
            name: LinkQueries(
                used=_by_pod(series, pods),
                capacity=f"max by (pod) (max_over_time({Metric.LINK_BANDWIDTH}"
                f'{{{pods},link="{name}"}}[{CAPACITY_WINDOW}]))',
            )
            for name, series in links.items()
        },
        queue=_latency(QUEUE_TIME, pods),
        latency=_latency(latency, pods),
    )


def _audits(pods: str) -> RatioQueries:
    """Sum and number of the audits: so few may be that their number matters, so no rates, and over
    the longer window."""
    part, whole = (
        f"sum(increase({Metric.MASS_RECALL}_{suffix}{{{pods}}}[{WINDOW}]))"
        for suffix in ("sum", "count")
    )
    return RatioQueries(part, whole)


def _mean(gauge: str) -> str:
    return f"avg_over_time({gauge}[{GAUGE_WINDOW}])"


def _total(series: str) -> str:
    return f"sum(rate({series}[{SCALING_WINDOW}]))"


def _by_pod(series: str, pods: str) -> str:
    """Rates by pod. A series with labels begins with what it counts for the first time: until then
    a pod that is scraped has counted nothing, and one that is not is missing."""
    rate = f"sum by (pod) (rate({series}[{SCALING_WINDOW}]))"
    return f"{rate} or 0 * sum by (pod) (vllm:num_requests_running{{{pods}}})"


def _or_zero(query: str, pods: str) -> str:
    """The same for one number of all pods."""
    return f"{query} or 0 * sum(vllm:num_requests_running{{{pods}}})"


def _latency(histogram: str, pods: str) -> LatencyQueries:
    buckets = f"sum by (le) (rate({histogram}_bucket{{{pods}}}[{SCALING_WINDOW}]))"
    return LatencyQueries(
        seconds=f"histogram_quantile({QUANTILE}, {buckets})",
        rate=_total(f"{histogram}_count{{{pods}}}"),
    )
