"""Where the KV of one deployment is, how it moves, and what that costs."""

from __future__ import annotations

from charts.dashboards.model import RATE, Dashboard, Panel, Query, Row
from charts.dashboards.promql import CHOICE, DECODE, HERE, PREFILL, mean, quantile, rate, ratio

FETCHED = f'{DECODE},source="remote"'

RATES = Row(
    "The five rates",
    [
        Panel(
            "Residency hit",
            [
                Query(
                    ratio(
                        "oasis_pages_resident_total", "oasis_pages_selected_total", DECODE, "pod"
                    ),
                    "{{pod}}",
                )
            ],
            "Selected pages that were in the fast tier already.",
            "percentunit",
            top=1,
        ),
        Panel(
            "Prediction agreement",
            [
                Query(
                    ratio("oasis_pages_agreed_total", "oasis_pages_predicted_total", DECODE, "pod"),
                    "{{pod}}",
                )
            ],
            "Predicted pages that the token's own query selects.",
            "percentunit",
            top=1,
        ),
        Panel(
            "Late fraction",
            [
                Query(
                    ratio("oasis_pages_late_total", "oasis_pages_selected_total", DECODE, "pod"),
                    "{{pod}}",
                )
            ],
            "Selected pages that were left out for not being there in time.",
            "percentunit",
            limit=0.05,
        ),
        Panel(
            "Attention mass recall",
            [
                Query(mean("oasis_attention_mass_recall", DECODE), "mean"),
                Query(quantile(0.05, "oasis_attention_mass_recall", DECODE), "p5"),
            ],
            "Share of dense attention's mass on the attended tokens, of samples.",
            "percentunit",
            top=1,
        ),
        Panel(
            "Output error",
            [
                Query(mean("oasis_attention_output_error", DECODE), "mean"),
                Query(quantile(0.95, "oasis_attention_output_error", DECODE), "p95"),
            ],
            "Relative L2 error of the attention output, of samples.",
            "percentunit",
        ),
        Panel(
            "Recall of samples",
            [
                Query(
                    f"sum by (le) (increase(oasis_attention_mass_recall_bucket{{{DECODE}}}{RATE}))",
                    "{{le}}",
                )
            ],
            "How samples spread; a tail on the left is heads that the budget is too small for.",
            kind="heatmap",
        ),
    ],
)

FAST = Row(
    "Fast tier",
    [
        Panel(
            "Used slots",
            [
                Query(
                    f'sum by (pod) (oasis_fast_slots{{{DECODE},state="used"}}) '
                    f'/ sum by (pod) (oasis_fast_slots{{{DECODE},state="total"}})',
                    "{{pod}}",
                )
            ],
            "A warm tier is full: pages stay until their slots are needed.",
            "percentunit",
            top=1,
        ),
        Panel(
            "Resident blocks per head",
            [Query(f"max by (pod) (oasis_resident_blocks_per_head{{{DECODE}}})", "{{pod}}")],
            "Mean over layers and KV heads.",
        ),
        Panel(
            "Escalated heads",
            [Query(f"max by (pod) (oasis_escalated_heads{{{DECODE}}})", "{{pod}}")],
            "KV heads that may select twice the budget, for their low audited recall.",
        ),
        Panel(
            "Dropped drafts",
            [Query(rate("oasis_drafts_dropped_total", DECODE, "method"), "{{method}}")],
            "Times that a request's drafts were wrong too often to pay, by what had drafted.",
            "ops",
        ),
        Panel(
            "Steps by mode",
            [Query(rate("oasis_request_steps_total", DECODE, "mode"), "{{mode}}")],
            "Decode steps of requests.",
            "ops",
            stacked=True,
        ),
        Panel(
            "Prefetch cap",
            [Query(f"min by (pod) (oasis_prefetch_cap_ratio{{{DECODE}}})", "{{pod}}")],
            "Share of the budget that a step may load: what the link hides behind a step.",
            "percentunit",
            top=1,
        ),
        Panel(
            "Waiting for copies",
            [Query(rate("oasis_layer_wait_seconds_total", DECODE, "pod"), "{{pod}}")],
            "Share of the time that decode waited for its own pages.",
            "percentunit",
        ),
        Panel(
            "Host tier",
            [Query(f"max by (pod) (vllm:kv_cache_usage_perc{{{HERE}}})", "{{pod}}")],
            "Used share of the blocks that hold all KV.",
            "percentunit",
            limit=0.95,
            top=1,
        ),
    ],
)

MOVES = Row(
    "Bytes",
    [
        Panel(
            "Between tiers",
            [
                Query(
                    rate("oasis_tier_bytes_total", DECODE, "source, target, reason"),
                    "{{source}} to {{target}}: {{reason}}",
                )
            ],
            "Pin: sinks and window. Demand: selected by a step, and still with a prefill pod.",
            "Bps",
            width=12,
            stacked=True,
        ),
        Panel(
            "KV that did not have to move",
            [
                Query(
                    f"1 - {rate('oasis_tier_bytes_total', FETCHED)} "
                    f"/ {rate('oasis_dense_transfer_bytes_total', DECODE)}",
                    "saved",
                )
            ],
            "Of what whole-prompt transfers of the same requests would have moved. Under 0: more.",
            "percentunit",
            width=6,
            top=1,
        ),
        Panel(
            "Bandwidth",
            [
                Query(
                    f"min by (pod, link) (oasis_link_bandwidth_bytes_per_second{{{HERE}}} >= 0)",
                    "{{pod}} {{link}}",
                )
            ],
            "As last measured.",
            "Bps",
            width=6,
        ),
    ],
)

EXPORTS = Row(
    "Exports",
    [
        Panel(
            "Outstanding",
            [Query(f"sum by (pod) (oasis_exports_outstanding{{{PREFILL}}})", "{{pod}}")],
            "Prompts whose KV is kept for a decode pod.",
        ),
        Panel(
            "Age of the oldest",
            [Query(f"max by (pod) (oasis_export_oldest_age_seconds{{{PREFILL}}})", "{{pod}}")],
            "Grows while a long answer is decoded.",
            "s",
            limit=900,
        ),
        Panel(
            "Went wrong",
            [
                Query(rate("oasis_leases_expired_total", PREFILL), "leases expired"),
                Query(rate("oasis_stale_reads_total", DECODE), "stale pages"),
                Query(rate("oasis_pages_failed_total", DECODE), "failed copies"),
                Query(rate("oasis_refused_transfers_total", HERE, "reason"), "refused: {{reason}}"),
            ],
            "Zero while all goes well.",
            "ops",
        ),
        Panel(
            "Links in use",
            [Query(f"min by (pod, link) (oasis_link_enabled{{{HERE}}})", "{{pod}} {{link}}")],
            "0 where a link is under its gate.",
            width=12,
        ),
        Panel(
            "NUMA",
            [Query(f"min by (pod) (oasis_numa_aligned{{{HERE}}})", "{{pod}}")],
            "1 aligned, 0 not, -1 unknown.",
            kind="table",
            width=12,
        ),
    ],
)

TIERS = Dashboard("oasiskv-tiers", "KV tiers", [RATES, FAST, MOVES, EXPORTS], CHOICE)
