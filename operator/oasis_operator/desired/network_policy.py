"""Network policy of the engines.

NIXL's ports trust whoever reaches them, and UCX picks them freely, so everything but HTTP is
open only between the prefill and the decode pods of one OasisDeployment.
"""

from __future__ import annotations

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.desired.metadata import (
    Component,
    Manifest,
    component_name,
    manifest,
    selector,
)
from oasis_runtime.contract import HTTP_PORT

_PEER = {Component.PREFILL: Component.DECODE, Component.DECODE: Component.PREFILL}


def network_policy(od: OasisDeployment, component: Component) -> Manifest:
    """What may reach the pods of one role.

    HTTP stays open: router, Prometheus and the kubelet come from places of their own, and the
    API is guarded by its key.
    """
    http: Manifest = {"ports": [{"port": HTTP_PORT, "protocol": "TCP"}]}
    # Said even where the spec has no peers: those of an earlier revision may still serve.
    peers: Manifest = {"from": [{"podSelector": {"matchLabels": selector(od, _PEER[component])}}]}
    return manifest(
        od, "networking.k8s.io/v1", "NetworkPolicy", component_name(od, component), component
    ) | {
        "spec": {
            "podSelector": {"matchLabels": selector(od, component)},
            "policyTypes": ["Ingress"],
            "ingress": [http, peers],
        }
    }
