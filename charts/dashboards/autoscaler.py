"""What scaling decides by, and what it decided.

The queries are the operator's own, about the chosen deployment: a panel shows the number that the
decision saw, over the same window and with the same denominator.
"""

from __future__ import annotations

from charts.dashboards.model import RATE, Dashboard, Panel, Query, Row
from charts.dashboards.promql import CHOICE, DECODE, HERE, PREFILL, TOLD
from oasis_operator.autoscaling.demand import (
    BUSY_TARGET,
    EXPORT_SECONDS,
    FULL,
    LINK_TARGET,
    QUEUE_SHARE,
    REQUESTS_TARGET,
)
from oasis_operator.autoscaling.recall import LEAST_RECALL
from oasis_operator.signals.queries import (
    CAPACITY_WINDOW,
    QUANTILE,
    LinkQueries,
    RatioQueries,
    scaling_queries,
    state_queries,
)

ASKED = scaling_queries(DECODE, PREFILL)
STATE = state_queries(HERE, DECODE)
PERCENTILE = f"p{QUANTILE * 100:.0f}"


def _share(ratio: RatioQueries) -> Query:
    return Query(f"({ratio.part}) / ({ratio.whole})", "share")


def _used(name: str, link: LinkQueries) -> Query:
    return Query(f"({link.used}) / ({link.capacity} > 0)", f"{{{{pod}}}} {name}")


DECISIONS = Row(
    "Decisions",
    [
        Panel(
            "Desired and ready",
            [
                Query(
                    f'oasis_deployment_replicas{{{TOLD},state="desired",component!="router"}}',
                    "{{component}} {{state}}",
                ),
                Query(
                    f'oasis_deployment_replicas{{{TOLD},state="ready",component!="router"}}',
                    "{{component}} {{state}}",
                ),
            ],
            "Pods by role.",
            width=12,
        ),
        Panel(
            "Decided on",
            [Query(f"oasis_desired_replicas{{{TOLD}}}", "{{role}}")],
            "Pods that scaling decided on. Empty where something else scales.",
            width=12,
        ),
        Panel(
            "Decisions by reason",
            [
                Query(
                    f"sum by (role, reason) "
                    f"(increase(oasis_scale_decisions_total{{{TOLD}}}{RATE}))",
                    "{{role}}: {{reason}}",
                )
            ],
            "Changes. docs/autoscaling.md explains the reasons.",
            width=12,
            stacked=True,
        ),
        Panel(
            "ScalingActive",
            [Query(f'oasis_deployment_condition{{{TOLD},type="ScalingActive"}}', "{{type}}")],
            "1 while decisions are made from fresh data; 0 while replicas are held, and the "
            "condition says why.",
            width=12,
        ),
    ],
)

LOAD = Row(
    "Load",
    [
        Panel(
            "Running",
            [Query(ASKED.prefill.running, "{{pod}}"), Query(ASKED.decode.running, "{{pod}}")],
            f"Requests that a pod works on. A decode pod is to have {REQUESTS_TARGET:.0%} of what "
            "it carries.",
        ),
        Panel(
            "Waiting",
            [Query(ASKED.prefill.waiting, "{{pod}}"), Query(ASKED.decode.waiting, "{{pod}}")],
            "Requests in a pod's queue.",
        ),
        Panel(
            "Requests started",
            [
                Query(ASKED.prefill.queue.rate, "prefill"),
                Query(ASKED.decode.queue.rate, "decode"),
            ],
            "Taken out of the queues of a role.",
            "reqps",
        ),
        Panel(
            f"Queue time, {PERCENTILE}",
            [
                Query(ASKED.prefill.queue.seconds, "prefill"),
                Query(ASKED.decode.queue.seconds, "decode"),
            ],
            f"More than {QUEUE_SHARE:.0%} of autoscaling.slo.ttftMilliseconds adds pods.",
            "s",
        ),
        Panel(
            f"Time to first token in prefill, {PERCENTILE}",
            [Query(ASKED.prefill.latency.seconds, "prefill")],
            "Beyond the SLO without waiting: pods would not help (PromptsTakeLonger).",
            "s",
        ),
        Panel(
            f"Time between tokens, {PERCENTILE}",
            [Query(ASKED.decode.latency.seconds, "decode")],
            "Beyond autoscaling.slo.tpotMilliseconds a decode pod carries less than configured.",
            "s",
        ),
        Panel(
            "Prompt tokens a second",
            [Query(ASKED.prefill.tokens, "{{pod}}"), Query(ASKED.decode.tokens, "{{pod}}")],
            "Computed, and not found in a cache or fetched. Decode computes what is left over.",
        ),
        Panel(
            "Busy",
            [Query(ASKED.prefill.busy, "{{pod}}"), Query(ASKED.decode.busy, "{{pod}}")],
            f"Share of the time with a request. Prefill pods are meant to be at {BUSY_TARGET:.0%}.",
            "percentunit",
            top=1,
        ),
        Panel(
            "First and further tokens",
            [
                Query(ASKED.prefill.latency.rate, "first, in prefill"),
                Query(ASKED.decode.latency.rate, "further, in decode"),
            ],
            "A second: what the two latencies are made of. At 0 there is no latency, and no gap.",
        ),
    ],
)

CAPACITY = Row(
    "What a decode pod carries",
    [
        Panel(
            "Residency hit",
            [_share(ASKED.hit)],
            "A step that fetches everything takes 2.5 times as long.",
            "percentunit",
            top=1,
        ),
        Panel(
            "Requests that fell back to dense",
            [_share(ASKED.dense)],
            "Short contexts are not counted: they cost little. What was asked for is.",
            "percentunit",
        ),
        Panel(
            "Used slots of the fast tiers",
            [_share(ASKED.slots)],
            "Full and with a low residency hit: no decode pod goes.",
            "percentunit",
            limit=FULL,
            top=1,
        ),
        Panel(
            "Attention mass recall",
            [_share(ASKED.recall)],
            f"Mean of the audits. Under {LEAST_RECALL:.0%} for long it is told (LowRecall), and "
            "changes nothing.",
            "percentunit",
            top=1,
        ),
        Panel(
            "Late fraction",
            [Query(STATE.late_ratio, "share")],
            "Selected pages that were not there in time: why latency or recall may be bad. Scaling "
            "decides by those.",
            "percentunit",
        ),
    ],
)

BETWEEN = Row(
    "Between the roles",
    [
        Panel(
            "Links in, share",
            [_used(name, link) for name, link in ASKED.decode.links.items()],
            f"Bytes that a decode pod gets, against the most that the link did in "
            f"{CAPACITY_WINDOW}. Beyond {LINK_TARGET:.0%} decode pods are added.",
            "percentunit",
            limit=LINK_TARGET,
        ),
        Panel(
            "Link out, share",
            [_used(name, link) for name, link in ASKED.prefill.links.items()],
            f"The same of a prefill pod that is read. Beyond {LINK_TARGET:.0%} prefill pods are "
            "added. Empty where its network interface says no speed.",
            "percentunit",
            limit=LINK_TARGET,
        ),
        Panel(
            "Exports and requests of decode",
            [
                Query(ASKED.exports, "exports"),
                Query(f"sum({ASKED.decode.running}) + sum({ASKED.decode.waiting})", "requests"),
            ],
            "What there are more exports than requests waits for decode, and adds decode pods.",
        ),
        Panel(
            "Age of the oldest export",
            [Query(ASKED.export_seconds, "oldest")],
            f"While exports wait and one is over {EXPORT_SECONDS:.0f} s old, prefill gets no more "
            "pods.",
            "s",
            limit=EXPORT_SECONDS,
        ),
    ],
)

AUTOSCALER = Dashboard(
    "oasiskv-autoscaler", "Autoscaler", [DECISIONS, LOAD, CAPACITY, BETWEEN], CHOICE
)
