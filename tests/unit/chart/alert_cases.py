"""When each alert fires, and when it does not."""

from __future__ import annotations

from tests.unit.chart.rules import Case

WHERE = {"namespace": "team", "oasiskv_deployment": "chat"}
TOLD = {"oasiskv_namespace": "team", "oasiskv_deployment": "chat"}
"""Labels as the operator's own series have them."""


def series(name: str, **labels: str) -> str:
    return name + "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"


def told(name: str, **labels: str) -> str:
    """A series of the operator about team/chat."""
    return series(name, namespace="oasiskv-system", pod="operator-1", **TOLD, **labels)


def decode(name: str, **labels: str) -> str:
    return series(name, **WHERE, pod="chat-1-decode-x", oasiskv_component="decode", **labels)


def prefill(name: str, **labels: str) -> str:
    return series(name, **WHERE, pod="chat-1-prefill-x", oasiskv_component="prefill", **labels)


def router(name: str, **labels: str) -> str:
    return series(name, **WHERE, pod="chat-router-x", oasiskv_component="router", **labels)


def operator(name: str, pod: str = "operator-1", **labels: str) -> str:
    return series(name, namespace="oasiskv-system", pod=pod, **labels)


OPERATOR = {"namespace": "oasiskv-system"}
ROUTERS = {"component": "router", "state": "ready"}

SERVING = [
    Case(
        "OasisDeploymentDown",
        "no router is ready",
        {told("oasis_deployment_replicas", **ROUTERS): "0x60"},
        "team/chat serves nobody",
        WHERE | TOLD | ROUTERS | {"pod": "operator-1"},
        settled=0,
    ),
    Case(
        "OasisDeploymentDown",
        "one of two routers is ready",
        {told("oasis_deployment_replicas", **ROUTERS): "1x60"},
    ),
    Case(
        "OasisDeploymentDown",
        "a router is away for four minutes now and then",
        {told("oasis_deployment_replicas", **ROUTERS): "1x10 0x3 1x10 0x3 1x40"},
    ),
    Case(
        "OasisPodsMissing",
        "two of three decode pods are ready",
        {
            told("oasis_deployment_replicas", component="decode", state="ready"): "2x60",
            told("oasis_deployment_replicas", component="decode", state="desired"): "3x60",
        },
        "team/chat has only 2 decode pods",
        WHERE | TOLD | {"component": "decode"},
        settled=0,
    ),
    Case(
        "OasisPodsMissing",
        "all are ready, and more than that during a rollout",
        {
            told("oasis_deployment_replicas", component="decode", state="ready"): "3x30 4x30",
            told("oasis_deployment_replicas", component="decode", state="desired"): "3x60",
        },
    ),
    Case(
        "OasisConditionFalse",
        "sparsity is not healthy",
        {told("oasis_deployment_condition", type="SparsityHealthy"): "0x60"},
        "team/chat: SparsityHealthy is False",
        WHERE | TOLD | {"type": "SparsityHealthy", "pod": "operator-1"},
        settled=0,
    ),
    Case(
        "OasisConditionFalse",
        "conditions are True or Unknown",
        {
            told("oasis_deployment_condition", type="Ready"): "1x60",
            told("oasis_deployment_condition", type="NUMAAligned"): "-1x60",
        },
    ),
    Case(
        "OasisConditionFalse",
        "decode pods are not ready, which Ready tells as well",
        {
            told("oasis_deployment_condition", type="Ready"): "0x60",
            told("oasis_deployment_condition", type="DecodeReady"): "0x60",
        },
        "team/chat: Ready is False",
        WHERE | TOLD | {"type": "Ready", "pod": "operator-1"},
        settled=0,
    ),
    Case(
        "OasisEngineUnreachable",
        "a decode pod does not answer scrapes",
        {decode("up", job="pods"): "0x60"},
        "team/chat-1-decode-x does not answer scrapes",
        WHERE | {"pod": "chat-1-decode-x", "oasiskv_component": "decode", "job": "pods"},
        settled=0,
    ),
    Case("OasisEngineUnreachable", "it answers", {decode("up", job="pods"): "1x60"}),
    Case(
        "OasisEngineUnreachable",
        "a model loads for a quarter of an hour",
        {decode("up", job="pods"): "1x20 0x15 1x60"},
    ),
    Case(
        "OasisEngineUnreachable",
        "something else is down",
        {series("up", namespace="team", pod="other", job="pods"): "0x60"},
    ),
    Case(
        "OasisRequestsFail",
        "one in ten requests over two roles ends in an error",
        {
            router("vllm_router_pd_prefill_errors_total", worker="http://p"): "0+2x60",
            router("vllm_router_pd_decode_errors_total", worker="http://d"): "0+4x60",
            router("vllm_router_pd_requests_total", route="/v1/completions"): "0+60x60",
        },
        "team/chat fails 10% of its requests",
        WHERE,
    ),
    Case(
        "OasisRequestsFail",
        "every request to engines of one role ends in an error",
        {router("vllm_router_retries_exhausted_total", route="/v1/completions"): "0+60x60"},
        "team/chat fails 100% of its requests",
        WHERE,
    ),
    Case(
        "OasisRequestsFail",
        "one in a hundred fails",
        {
            router("vllm_router_pd_decode_errors_total", worker="http://d"): "0+1x60",
            router("vllm_router_pd_requests_total", route="/v1/completions"): "0+100x60",
        },
    ),
    Case(
        "OasisRequestsFail",
        "one in a hundred fails at engines of one role",
        {
            router("vllm_router_retries_exhausted_total", route="/v1/completions"): "0+1x60",
            router("vllm_router_requests_total", route="/v1/completions"): "0+99x60",
        },
    ),
    Case(
        "OasisQueueGrows",
        "more requests wait than run",
        {
            decode("vllm:num_requests_waiting"): "9x60",
            decode("vllm:num_requests_running"): "4x60",
        },
        "team/chat: 9 requests wait for decode pods",
        WHERE | {"oasiskv_component": "decode"},
        settled=0,
    ),
    Case(
        "OasisQueueGrows",
        "a queue that empties every few minutes",
        {
            decode("vllm:num_requests_waiting"): "9 9 9 0 9 9 9 0 9 9 9 0x50",
            decode("vllm:num_requests_running"): "4x60",
        },
    ),
    Case(
        "OasisHostTierFull",
        "blocks are used up",
        {decode("vllm:kv_cache_usage_perc"): "0.99x60"},
        "team/chat-1-decode-x: 99% of the host tier are used",
        WHERE | {"pod": "chat-1-decode-x"},
        settled=0,
    ),
    Case(
        "OasisHostTierFull",
        "there is room",
        {decode("vllm:kv_cache_usage_perc"): "0.8x60"},
    ),
]


def pages(kind: str, per_minute: int) -> dict[str, str]:
    return {
        decode(f"oasis_pages_{kind}_total"): f"0+{per_minute}x60",
        decode("oasis_pages_selected_total"): "0+1000x60",
    }


def recall(mean: float) -> dict[str, str]:
    return {
        decode("oasis_attention_mass_recall_sum"): f"0+{mean * 100}x60",
        decode("oasis_attention_mass_recall_count"): "0+100x60",
    }


def one_poor_audit(every: int) -> dict[str, str]:
    """Every so many minutes."""
    recalls = " ".join(f"{count * 0.5}x{every - 1}" for count in range(60 // every))
    counts = " ".join(f"{count}x{every - 1}" for count in range(60 // every))
    return {
        decode("oasis_attention_mass_recall_sum"): recalls,
        decode("oasis_attention_mass_recall_count"): counts,
    }


def fallbacks(reason: str, per_minute: int) -> dict[str, str]:
    return {
        decode("oasis_fallbacks_total", reason=reason): f"0+{per_minute}x60",
        decode("vllm:request_success_total", finished_reason="stop"): "0+100x60",
        decode("oasis_request_steps_total", mode="dense"): "0+900x60",
        decode("oasis_request_steps_total", mode="sparse"): "0+100x60",
    }


SPARSITY = [
    Case(
        "OasisResidencyLow",
        "four of five selected pages are resident",
        pages("resident", 800),
        "team/chat: residency hit 80%",
        WHERE,
    ),
    Case("OasisResidencyLow", "nearly all are resident", pages("resident", 970)),
    Case(
        "OasisResidencyLow",
        "nothing is selected: there is no traffic",
        {
            decode("oasis_pages_resident_total"): "5x60",
            decode("oasis_pages_selected_total"): "10x60",
        },
    ),
    Case(
        "OasisResidencyLow",
        "a prefill engine selects and has nothing resident",
        {
            prefill("oasis_pages_resident_total"): "0x60",
            prefill("oasis_pages_selected_total"): "0+1000x60",
        },
    ),
    Case("OasisRecallLow", "recall is 0.7", recall(0.7), "team/chat: recall 70%", WHERE),
    Case("OasisRecallLow", "recall is 0.95", recall(0.95)),
    Case("OasisRecallLow", "an audit every two minutes is all there is", one_poor_audit(2)),
    Case(
        "OasisLatePages",
        "one page in ten is late",
        pages("late", 100),
        "team/chat: 10% of the selected pages come late",
        WHERE,
    ),
    Case("OasisLatePages", "one page in fifty is late", pages("late", 20)),
    Case(
        "OasisFastTierFull",
        "one request in five finds no room",
        fallbacks("fast_tier_full", 20),
        "team/chat: no room in the fast tier for 20% of the requests",
        WHERE,
    ),
    Case("OasisFastTierFull", "one in fifty does", fallbacks("fast_tier_full", 2)),
    Case("OasisFastTierFull", "contexts are short", fallbacks("short_context", 100)),
    Case(
        "OasisMostlyDense",
        "requests that were meant to be sparse are not",
        fallbacks("fast_tier_full", 20),
        "team/chat: 90% of the decode steps are dense",
        WHERE,
    ),
    Case("OasisMostlyDense", "contexts are short", fallbacks("short_context", 100)),
    Case("OasisMostlyDense", "one in fifty has no room", fallbacks("fast_tier_full", 2)),
    Case("OasisMostlyDense", "dense was asked for", fallbacks("mode", 100)),
    Case(
        "OasisUnaligned",
        "a pod runs on the other socket",
        {decode("oasis_numa_aligned"): "0x60"},
        "team/chat-1-decode-x is not on the NUMA node of its device",
        WHERE | {"pod": "chat-1-decode-x", "oasiskv_component": "decode"},
        settled=0,
    ),
    Case(
        "OasisUnaligned",
        "one is aligned, and one has nothing to align with",
        {decode("oasis_numa_aligned"): "1x60", prefill("oasis_numa_aligned"): "-1x60"},
    ),
]

NETWORK = {"link": "network"}
BANDWIDTH = "oasis_link_bandwidth_bytes_per_second"


def unread(per_minute: int) -> dict[str, str]:
    """Exports of 100 requests a minute that end with their leases."""
    return {
        prefill("oasis_leases_expired_total"): f"0+{per_minute}x60",
        prefill("vllm:request_success_total", finished_reason="length"): "0+100x60",
    }


TRANSFER = [
    Case(
        "OasisLinkDisabled",
        "the link to the fast tier is under its gate",
        {decode("oasis_link_enabled", link="host_fast"): "0x60"},
        "team/chat: the link host_fast is not used",
        WHERE | {"link": "host_fast"},
        settled=0,
    ),
    Case(
        "OasisLinkDisabled",
        "the network is under its gate",
        {decode("oasis_link_enabled", **NETWORK): "0x60", prefill("up"): "1x60"},
        "team/chat: the link network is not used",
        WHERE | NETWORK,
        settled=0,
    ),
    Case(
        "OasisLinkDisabled",
        "pods that serve from prompt to end have no peer",
        {
            decode("oasis_link_enabled", **NETWORK): "0x60",
            decode("oasis_link_enabled", link="host_fast"): "1x60",
            decode("up"): "1x60",
        },
    ),
    Case(
        "OasisLinkSlow",
        "the link falls to a tenth",
        {decode(BANDWIDTH, **NETWORK): "20e9x120 2e9x60"},
        "team/chat: KV comes at 1.863GiB/s",
        WHERE | NETWORK,
        settled=135,
    ),
    Case(
        "OasisLinkSlow",
        "it stays as it was",
        {decode(BANDWIDTH, **NETWORK): "20e9x60 15e9x60"},
        until=100,
    ),
    Case(
        "OasisLinkSlow",
        "nothing was measured yet",
        {decode(BANDWIDTH, **NETWORK): "-1x120"},
        until=100,
    ),
    Case(
        "OasisExportsStuck",
        "an export is an hour old",
        {prefill("oasis_export_oldest_age_seconds"): "3600x60"},
        "team/chat keeps KV for a decode pod since 1h 0m 0s",
        WHERE,
        settled=0,
    ),
    Case(
        "OasisExportsStuck",
        "exports end within minutes",
        {prefill("oasis_export_oldest_age_seconds"): "0+60x9 0+60x9 0+60x9 0+60x9 0+60x9 0+60x9"},
        until=50,
    ),
    Case(
        "OasisExportsPileUp",
        "prefill is ahead of decode",
        {
            prefill("oasis_exports_outstanding"): "40x60",
            decode("vllm:num_requests_running"): "8x60",
        },
        "team/chat: 40 prompts wait for decode pods",
        WHERE,
        settled=0,
    ),
    Case(
        "OasisExportsPileUp",
        "each export belongs to a request that is decoded",
        {
            prefill("oasis_exports_outstanding"): "8x60",
            decode("vllm:num_requests_running"): "8x60",
        },
    ),
    Case(
        "OasisLeasesExpire",
        "one in twenty ends unread",
        unread(5),
        "team/chat: 5% of the exports end unread",
        WHERE,
    ),
    Case("OasisLeasesExpire", "none does", unread(0)),
    Case(
        "OasisTransfersRefused",
        "a decode pod refuses what comes",
        {decode("oasis_refused_transfers_total", reason="reader"): "0+1x60"},
        "team/chat: transfers are refused (reader)",
        WHERE | {"reason": "reader"},
    ),
    Case(
        "OasisTransfersRefused",
        "one was refused while a pod restarted",
        {decode("oasis_refused_transfers_total", reason="lost"): "0x5 1x60"},
    ),
]

LEADER = "oasis_operator_leader"
RECONCILES = "oasis_operator_reconciles_total"
SECONDS_BUCKET = "oasis_operator_reconcile_seconds_bucket"

OPERATORS = [
    Case(
        "OasisOperatorWithoutLeader",
        "both replicas wait",
        {operator(LEADER): "0x60", operator(LEADER, "operator-2"): "0x60"},
        "No replica of the OasisKV operator leads",
        settled=0,
    ),
    Case(
        "OasisOperatorWithoutLeader",
        "there is none at all",
        {series("up", job="pods"): "1x60"},
        "No replica of the OasisKV operator leads",
        settled=0,
    ),
    Case(
        "OasisOperatorWithoutLeader",
        "leadership moves",
        {
            operator(LEADER): "1x30 0x30",
            operator(LEADER, "operator-2"): "0x31 1x30",
        },
    ),
    Case(
        "OasisOperatorTwoLeaders",
        "both lead",
        {operator(LEADER): "1x60", operator(LEADER, "operator-2"): "1x60"},
        "2 replicas of the OasisKV operator lead",
        OPERATOR,
        settled=0,
    ),
    Case(
        "OasisOperatorTwoLeaders",
        "one leads",
        {operator(LEADER): "1x60", operator(LEADER, "operator-2"): "0x60"},
    ),
    Case(
        "OasisReconcileErrors",
        "one in five is refused",
        {
            operator(RECONCILES, result="refused"): "0+20x60",
            operator(RECONCILES, result="ok"): "0+80x60",
        },
        "20% of the OasisKV operator's reconciles fail",
        OPERATOR,
    ),
    Case(
        "OasisReconcileErrors",
        "namespaces end",
        {
            operator(RECONCILES, result="terminating"): "0+50x60",
            operator(RECONCILES, result="ok"): "0+50x60",
        },
    ),
    Case(
        "OasisReconcileBacklog",
        "the queue never empties",
        {operator("oasis_operator_queue_depth"): "50x60"},
        "At least 50 OasisDeployments wait for the operator",
        OPERATOR,
        settled=0,
    ),
    Case(
        "OasisReconcileBacklog",
        "a resync fills it now and then",
        {operator("oasis_operator_queue_depth"): "200 0 0 0 200 0 0 0 200 0 0 0x50"},
    ),
    Case(
        "OasisReconcileSlow",
        "reconciles take up to ten seconds",
        {
            operator(SECONDS_BUCKET, le="5"): "0+50x60",
            operator(SECONDS_BUCKET, le="10"): "0+100x60",
            operator(SECONDS_BUCKET, le="+Inf"): "0+100x60",
        },
        "One in a hundred reconciles takes 9.9s",
        OPERATOR,
    ),
    Case(
        "OasisReconcileSlow",
        "they take less than a second",
        {
            operator(SECONDS_BUCKET, le="1"): "0+100x60",
            operator(SECONDS_BUCKET, le="+Inf"): "0+100x60",
        },
    ),
]

CASES = [*SERVING, *SPARSITY, *TRANSFER, *OPERATORS]
