"""NUMAAligned, TransportHealthy and SparsityHealthy, from the engines' metrics.

No data is ``Unknown``: it never counts as zero and never as health.
"""

from __future__ import annotations

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.api.status import ConditionStatus
from oasis_operator.autoscaling.measured import Ratio
from oasis_operator.autoscaling.recall import LEAST_AUDITS, LEAST_RECALL, mean_recall
from oasis_operator.desired.roles import is_disaggregated
from oasis_operator.reconcile.conditions import (
    NUMA_ALIGNED,
    SPARSITY_HEALTHY,
    TRANSPORT_HEALTHY,
    Draft,
)
from oasis_operator.signals.prometheus import NoSignals, Signals

NETWORK_LINK = "network"
"""Value of the label ``link`` of the link between prefill and decode."""
MIN_RESIDENT_RATIO = 0.9
MAX_LATE_RATIO = 0.05
MAX_DENSE_SHARE = 0.5
MAX_FALLBACK_SHARE = 0.05
"""Of the requests, for a reason that is a fault."""
NO_FAULT = frozenset({"short_context", "mode", "no_selection", "prefill_role"})
"""Reasons for dense steps that were meant to be so, or that last for one step."""
REMEDIES = {
    "copy_failed": "see the engines' logs for the copies that fail",
    "fast_tier_full": "raise spec.kv.fastSize or lower spec.engine.maxNumSeqs",
    "low_recall": "raise spec.kv.budgetTokens",
}
"""What to do about the others."""


def signal_conditions(od: OasisDeployment, signals: Signals | NoSignals) -> list[Draft]:
    """The three conditions that need metrics."""
    if isinstance(signals, NoSignals):
        kinds = (NUMA_ALIGNED, TRANSPORT_HEALTHY, SPARSITY_HEALTHY)
        return [Draft(kind, "Unknown", signals.reason, signals.message) for kind in kinds]
    return [_numa(od, signals), _transport(od, signals), _sparsity(od, signals)]


def serving_mode(signals: Signals | NoSignals) -> str | None:
    """How most decode steps ran; ``None`` without any."""
    share = _dense_share(signals) if isinstance(signals, Signals) else None
    if share is None:
        return None
    return "dense" if share > MAX_DENSE_SHARE else "sparse"


def hit_rate(signals: Signals | NoSignals) -> str | None:
    """Residency hit rate with two digits; ``None`` without data."""
    if isinstance(signals, NoSignals) or signals.resident_ratio is None:
        return None
    return f"{signals.resident_ratio:.2f}"


def _dense_share(signals: Signals) -> float | None:
    total = sum(signals.steps_by_mode.values())
    return signals.steps_by_mode.get("dense", 0.0) / total if total > 0 else None


def _numa(od: OasisDeployment, signals: Signals) -> Draft:
    def draft(status: ConditionStatus, reason: str, message: str) -> Draft:
        return Draft(NUMA_ALIGNED, status, reason, message)

    if od.spec.topology.numa.policy == "none":
        return draft("Unknown", "NotAsked", "spec.topology.numa.policy is none")
    if not signals.numa_by_pod:
        return draft("Unknown", "NoData", "no engine has reported its NUMA placement yet")
    unaligned = sorted(pod for pod, value in signals.numa_by_pod.items() if value == 0)
    if unaligned:
        return draft(
            "False",
            "NotAligned",
            f"CPUs, memory and devices are not on one NUMA node in {', '.join(unaligned)}: let "
            "the kubelet align pods (topologyManagerPolicy single-numa-node, static CPU manager) "
            "and give the role equal integer CPU requests and limits",
        )
    if any(value < 0 for value in signals.numa_by_pod.values()):
        return draft("Unknown", "NoDevice", "engines have no device with a NUMA node to align with")
    return draft(
        "True",
        "Aligned",
        f"CPUs and memory of {_who_reports(od)} are on one NUMA node",
    )


def _who_reports(od: OasisDeployment) -> str:
    """Of an engine on several nodes only the pod that answers has metrics; what the others find is
    in their logs."""
    nodes = od.spec.engine.nodes
    if nodes == 1:
        return "every pod"
    return f"the pods that report, 1 of {nodes} in each engine,"


def _transport(od: OasisDeployment, signals: Signals) -> Draft:
    def draft(status: ConditionStatus, reason: str, message: str) -> Draft:
        return Draft(TRANSPORT_HEALTHY, status, reason, message)

    # Engines without a peer report the network link as not in use, which is no fault.
    links = {
        link: value
        for link, value in signals.enabled_by_link.items()
        if link != NETWORK_LINK or is_disaggregated(od)
    }
    if not links:
        return draft("Unknown", "NoData", "no engine has reported its links yet")
    disabled = sorted(link for link, value in links.items() if value == 0)
    if disabled:
        return draft(
            "False",
            "LinkTooSlow",
            f"disabled for being under the least bandwidth: {', '.join(disabled)}; use a faster "
            "link, or set spec.kv.links.force to use it all the same",
        )
    if signals.refused_transfers:
        return draft(
            "False",
            "TransfersRefused",
            "engines refuse each other's transfers: see their logs for the sentence that says why",
        )
    return draft("True", "Healthy", f"in use: {', '.join(sorted(links))}")


def _sparsity(od: OasisDeployment, signals: Signals) -> Draft:
    def draft(status: ConditionStatus, reason: str, message: str) -> Draft:
        return Draft(SPARSITY_HEALTHY, status, reason, message)

    if od.spec.kv.mode == "dense":
        return draft("Unknown", "DenseMode", "spec.kv.mode is dense")
    dense = _dense_share(signals)
    if dense is None:
        return draft("Unknown", "NoTraffic", "no decode step in the last minutes to judge by")
    faults = _faults(signals)
    share = Ratio(sum(faults.values()), signals.requests).value
    if share is None and faults:
        share = 1.0  # Requests are counted when they end, fallbacks when they happen.
    if dense > MAX_DENSE_SHARE and share is not None and share > MAX_FALLBACK_SHARE:
        advice = [REMEDIES[reason] for reason in faults if reason in REMEDIES]
        told = f": {'; '.join(advice)}" if advice else ""
        return draft(
            "False",
            "MostlyDense",
            f"most decode steps run densely, and more than {MAX_FALLBACK_SHARE:.0%} of the "
            f"requests fall back for {', '.join(faults)}{told}",
        )
    if not signals.steps_by_mode.get("sparse"):
        return draft(
            "Unknown",
            "NoSparseSteps",
            "every decode step of the last minutes was dense: there is no sparse one to judge by",
        )
    if signals.resident_ratio is not None and signals.resident_ratio < MIN_RESIDENT_RATIO:
        return draft(
            "False",
            "LowHitRate",
            f"less than {MIN_RESIDENT_RATIO:.0%} of the selected pages are resident: raise "
            "spec.kv.fastSize or lower spec.engine.maxNumSeqs",
        )
    if signals.late_ratio is not None and signals.late_ratio > MAX_LATE_RATIO:
        return draft(
            "False",
            "LatePages",
            f"more than {MAX_LATE_RATIO:.0%} of the selected pages come too late: raise "
            "spec.kv.fastSize, or use a faster link",
        )
    recall = mean_recall(signals.recall)
    if recall is None:
        return draft(
            "Unknown",
            "TooFewAudits",
            f"fewer than {LEAST_AUDITS} audits in the last minutes: too few to judge recall by",
        )
    if recall < LEAST_RECALL:
        return draft(
            "False",
            "LowRecall",
            f"selected blocks hold less than {LEAST_RECALL:.0%} of the attention: raise "
            "spec.kv.budgetTokens",
        )
    return draft("True", "Healthy", "sparse steps find their pages resident and hold the attention")


def _faults(signals: Signals) -> dict[str, float]:
    """Fallbacks that nobody asked for, the most frequent reason first."""
    found = {
        reason: rate
        for reason, rate in signals.fallbacks_by_reason.items()
        if rate > 0 and reason not in NO_FAULT
    }
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))
