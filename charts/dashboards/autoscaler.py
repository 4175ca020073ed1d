"""What scaling decides by, and what it decided."""

from __future__ import annotations

from charts.dashboards.model import RATE, Dashboard, Panel, Query, Row
from charts.dashboards.promql import CHOICE, DECODE, HERE, PREFILL, TOLD, quantile, rate, share

LOAD = Row(
    "Load of a pod",
    [
        Panel(
            "Running, mean of a role",
            [
                Query(
                    f"avg by (oasiskv_component) (vllm:num_requests_running{{{HERE}}})",
                    "{{oasiskv_component}}",
                )
            ],
            "Requests that a pod works on.",
        ),
        Panel(
            "Waiting, worst pod of a role",
            [
                Query(
                    f"max by (oasiskv_component) (vllm:num_requests_waiting{{{HERE}}})",
                    "{{oasiskv_component}}",
                )
            ],
            "The worst pod, because a mean hides it.",
        ),
        Panel(
            "Latency, p95",
            [
                Query(quantile(0.95, "vllm:time_to_first_token_seconds", DECODE), "first token"),
                Query(quantile(0.95, "vllm:e2e_request_latency_seconds", PREFILL), "in prefill"),
                Query(
                    quantile(0.95, "vllm:request_time_per_output_token_seconds", DECODE),
                    "per output token",
                ),
            ],
            "What a latency target is held against.",
            "s",
        ),
    ],
)

LIMITS = Row(
    "Limits of a pod",
    [
        Panel(
            "KV over the network, share of the link",
            [
                Query(
                    f"sum by (pod) (rate(oasis_tier_bytes_total"
                    f'{{{DECODE},source="remote"}}[$__rate_interval])) '
                    f"/ max by (pod) (oasis_link_bandwidth_bytes_per_second"
                    f'{{{DECODE},link="network"}} > 0)',
                    "{{pod}}",
                )
            ],
            "Bytes that a decode pod fetches, against what its link was measured to carry.",
            "percentunit",
            limit=0.8,
        ),
        Panel(
            "Exports outstanding",
            [Query(f"sum by (pod) (oasis_exports_outstanding{{{PREFILL}}})", "{{pod}}")],
            "Many: decode is the bottleneck, and more prefill pods make it worse.",
        ),
        Panel(
            "Requests that fell back to dense",
            [
                Query(
                    share(
                        rate("oasis_fallbacks_total", DECODE),
                        rate("vllm:request_success_total", DECODE),
                    ),
                    "share",
                )
            ],
            "A dense request costs a pod more than a sparse one.",
            "percentunit",
        ),
    ],
)

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

AUTOSCALER = Dashboard("oasiskv-autoscaler", "Autoscaler", [DECISIONS, LOAD, LIMITS], CHOICE)
