"""PromQL. Every query the operator asks is here.

Series are found by the labels ``namespace`` and ``pod``, which Prometheus' usual discovery of
pods (and a PodMonitor) sets. Ratios are made of counters summed over the pods.
"""

from __future__ import annotations

from dataclasses import dataclass

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.desired.revision import DIGITS
from oasis_runtime.contract import Metric

WINDOW = "5m"


@dataclass(frozen=True)
class Queries:
    """The queries about one OasisDeployment."""

    resident_ratio: str
    late_ratio: str
    mass_recall: str
    steps_by_mode: str
    fallbacks_by_reason: str
    refused_transfers: str
    numa_by_pod: str
    enabled_links: str


def queries(od: OasisDeployment) -> Queries:
    engines = f"{od.name}-[0-9a-f]{{{DIGITS}}}-(prefill|decode)-.+"
    pods = f'namespace="{od.namespace}",pod=~"{engines}"'

    def rate(metric: str, by: str = "") -> str:
        grouping = f" by ({by})" if by else ""
        return f"sum{grouping} (rate({metric}{{{pods}}}[{WINDOW}]))"

    recall = Metric.MASS_RECALL
    return Queries(
        resident_ratio=f"{rate(Metric.PAGES_RESIDENT)} / {rate(Metric.PAGES_SELECTED)}",
        late_ratio=f"{rate(Metric.PAGES_LATE)} / {rate(Metric.PAGES_SELECTED)}",
        mass_recall=f"{rate(f'{recall}_sum')} / {rate(f'{recall}_count')}",
        steps_by_mode=rate(Metric.STEPS, "mode"),
        fallbacks_by_reason=rate(Metric.FALLBACKS, "reason"),
        refused_transfers=rate(Metric.REFUSED_TRANSFERS),
        numa_by_pod=f"min by (pod) ({Metric.NUMA_ALIGNED}{{{pods}}})",
        enabled_links=f"min by (link) ({Metric.LINK_ENABLED}{{{pods}}})",
    )
