"""Network policy of the engines.

NIXL's ports trust whoever reaches them, and UCX picks them freely, so everything but HTTP is
open only between the prefill and the decode pods of one OasisDeployment, and between the pods of an
engine on several nodes.
"""

from __future__ import annotations

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.desired.metadata import (
    COMPONENT_LABEL,
    DEPLOYMENT_LABEL,
    Component,
    Manifest,
    component_name,
    manifest,
    selector,
    workers_of,
)
from oasis_runtime.contract import HTTP_PORT

_PEER = {Component.PREFILL: Component.DECODE, Component.DECODE: Component.PREFILL}


def network_policy(od: OasisDeployment, component: Component) -> Manifest:
    """What may reach the pods of one role.

    HTTP stays open: router, Prometheus and the kubelet come from places of their own, and the
    API is guarded by its key.
    """
    http: Manifest = {"ports": [{"port": HTTP_PORT, "protocol": "TCP"}]}
    # Said even where the spec has no peers: those of an earlier revision may still serve. So may
    # engines on several nodes.
    other, own = {"matchLabels": selector(od, _PEER[component])}, _engines(od, component)
    peers: Manifest = {"from": [{"podSelector": other}, {"podSelector": own}]}
    return manifest(
        od, "networking.k8s.io/v1", "NetworkPolicy", component_name(od, component), component
    ) | {
        "spec": {
            "podSelector": _engines(od, component),
            "policyTypes": ["Ingress"],
            "ingress": [http, peers],
        }
    }


def _engines(od: OasisDeployment, component: Component) -> Manifest:
    """Chooses all pods of the engines of a role."""
    values = [component.value, workers_of(component)]
    return {
        "matchLabels": {DEPLOYMENT_LABEL: od.name},
        "matchExpressions": [{"key": COMPONENT_LABEL, "operator": "In", "values": values}],
    }
