"""Disruption budgets: a node drain takes one pod of a component at a time."""

from __future__ import annotations

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.desired.metadata import (
    Component,
    Manifest,
    component_name,
    manifest,
    selector,
)


def disruption_budget(od: OasisDeployment, component: Component) -> Manifest:
    """``maxUnavailable`` and not ``minAvailable``: a single replica must not block a drain."""
    return manifest(
        od, "policy/v1", "PodDisruptionBudget", component_name(od, component), component
    ) | {
        "spec": {
            "maxUnavailable": 1,
            # A pod that serves nothing must not keep a node from being drained.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": selector(od, component)},
        }
    }
