"""Pieces of PromQL that the dashboards share."""

from __future__ import annotations

from charts.dashboards.model import RATE, Query, Variable

HERE = 'namespace="$namespace",oasiskv_deployment="$deployment"'
DECODE = f'{HERE},oasiskv_component="decode"'
PREFILL = f'{HERE},oasiskv_component="prefill"'
TOLD = 'oasiskv_namespace="$namespace",oasiskv_deployment="$deployment"'
"""As the operator labels its series about a deployment."""

CHOICE = (
    Variable("namespace", "label_values(oasis_deployment_condition, oasiskv_namespace)"),
    Variable(
        "deployment",
        'label_values(oasis_deployment_condition{oasiskv_namespace="$namespace"}, '
        "oasiskv_deployment)",
    ),
)


def rate(metric: str, labels: str = "", by: str = "") -> str:
    """Sum of the rates of a counter."""
    grouping = f" by ({by})" if by else ""
    selector = f"{{{labels}}}" if labels else ""
    return f"sum{grouping} (rate({metric}{selector}{RATE}))"


def ratio(part: str, whole: str, labels: str = "", by: str = "") -> str:
    """Of two counters."""
    return f"{rate(part, labels, by)} / {rate(whole, labels, by)}"


def share(part: str, whole: str) -> str:
    """Of two sums. A series with labels begins when it is first counted; before, the part is 0."""
    return f"({part} or 0 * {whole}) / {whole}"


def mean(histogram: str, labels: str = "", by: str = "") -> str:
    """Of a histogram's observations."""
    return ratio(f"{histogram}_sum", f"{histogram}_count", labels, by)


def quantile(q: float, histogram: str, labels: str = "", by: str = "") -> str:
    """Of a histogram's observations."""
    grouping = f"{by}, le" if by else "le"
    return f"histogram_quantile({q}, {rate(f'{histogram}_bucket', labels, grouping)})"


def quantiles(histogram: str, labels: str = "") -> list[Query]:
    """Median, 95th and 99th percentile."""
    return [Query(quantile(q, histogram, labels), f"p{q * 100:.0f}") for q in (0.5, 0.95, 0.99)]
