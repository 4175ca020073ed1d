"""One deployment: its requests, its pods and its routers."""

from __future__ import annotations

from charts.dashboards.model import Dashboard, Panel, Query, Row
from charts.dashboards.promql import (
    CHOICE,
    DECODE,
    HERE,
    PREFILL,
    TOLD,
    quantile,
    quantiles,
    rate,
    ratio,
)

STATE = Row(
    "State",
    [
        Panel(
            "Conditions",
            [Query(f"oasis_deployment_condition{{{TOLD}}}", "{{type}}")],
            "1 True, 0 False, -1 Unknown. The message says what to do.",
            kind="table",
            width=12,
        ),
        Panel(
            "Pods",
            [
                Query(
                    f'oasis_deployment_replicas{{{TOLD},state="ready"}}', "{{component}} {{state}}"
                ),
                Query(
                    f'oasis_deployment_replicas{{{TOLD},state="desired"}}',
                    "{{component}} {{state}}",
                ),
            ],
            "Ready and desired pods by component.",
            width=12,
        ),
    ],
)

REQUESTS = Row(
    "Requests",
    [
        Panel(
            "Time to first token",
            quantiles("vllm:time_to_first_token_seconds", DECODE),
            "As decode pods measure it: with two roles it leaves out the time in prefill.",
            "s",
        ),
        Panel(
            "Time in prefill pods",
            quantiles("vllm:e2e_request_latency_seconds", PREFILL),
            "From the router's request to the export. Empty with one role.",
            "s",
        ),
        Panel(
            "Time per output token",
            quantiles("vllm:request_time_per_output_token_seconds", DECODE),
            "Over finished requests.",
            "s",
        ),
        Panel(
            "Tokens a second",
            [
                Query(rate("vllm:prompt_tokens_total", DECODE), "prompts"),
                Query(rate("vllm:generation_tokens_total", DECODE), "generated"),
            ],
            "In decode pods.",
        ),
        Panel(
            "Finished requests",
            [
                Query(
                    rate("vllm:request_success_total", DECODE, "finished_reason"),
                    "{{finished_reason}}",
                )
            ],
            "By why they ended. Abort: the client went.",
            "reqps",
            stacked=True,
        ),
        Panel(
            "Fallbacks",
            [Query(rate("oasis_fallbacks_total", DECODE, "reason"), "{{reason}}")],
            "Requests that were decoded densely, by reason. Short contexts are no fault.",
            "reqps",
            stacked=True,
        ),
    ],
)

PODS = Row(
    "Pods",
    [
        Panel(
            "Running",
            [Query(f"sum by (pod) (vllm:num_requests_running{{{HERE}}})", "{{pod}}")],
            "Requests that an engine works on.",
        ),
        Panel(
            "Waiting",
            [Query(f"sum by (pod) (vllm:num_requests_waiting{{{HERE}}})", "{{pod}}")],
            "Requests in an engine's queue.",
        ),
        Panel(
            "Host tier",
            [Query(f"max by (pod) (vllm:kv_cache_usage_perc{{{HERE}}})", "{{pod}}")],
            "Used share of the blocks that hold all KV.",
            "percentunit",
            limit=0.95,
            top=1,
        ),
        Panel(
            "Prefix cache hit",
            [
                Query(
                    ratio(
                        "vllm:prefix_cache_hits_total",
                        "vllm:prefix_cache_queries_total",
                        HERE,
                        "pod",
                    ),
                    "{{pod}}",
                )
            ],
            "Prompt tokens whose KV was there already.",
            "percentunit",
            top=1,
        ),
        Panel(
            "Preemptions",
            [Query(rate("vllm:num_preemptions_total", HERE, "pod"), "{{pod}}")],
            "Requests that start again because the host tier was full.",
            "ops",
        ),
        Panel(
            "Queue time, p95",
            [Query(quantile(0.95, "vllm:request_queue_time_seconds", HERE, "pod"), "{{pod}}")],
            "Time that a request waited in the engine.",
            "s",
        ),
    ],
)

ROUTERS = Row(
    "Routers",
    [
        Panel(
            "Requests",
            [
                Query(
                    f"{rate('vllm_router_pd_requests_total', HERE, 'route')} "
                    f"or {rate('vllm_router_requests_total', HERE, 'route')}",
                    "{{route}}",
                )
            ],
            "By path of the API.",
            "reqps",
        ),
        Panel(
            "Errors",
            [
                Query(rate("vllm_router_pd_prefill_errors_total", HERE), "prefill"),
                Query(rate("vllm_router_pd_decode_errors_total", HERE), "decode"),
                Query(rate("vllm_router_retries_exhausted_total", HERE), "after retries"),
            ],
            "Requests that failed, by the role that failed them. No data: none so far.",
            "reqps",
        ),
        Panel(
            "Worker health",
            [Query(f"min by (worker) (vllm_router_worker_health{{{HERE}}})", "{{worker}}")],
            "0 where a router has given a worker up.",
        ),
    ],
)

DEPLOYMENT = Dashboard("oasiskv-deployment", "Deployment", [STATE, REQUESTS, PODS, ROUTERS], CHOICE)
