"""What Prometheus needs in the cluster: rights, and an address for pods."""

from __future__ import annotations

from typing import Any

from testbed.node import layout

NAMESPACE = "monitoring"
NAME = "prometheus"
PORT = 9090
URL = f"http://{NAME}.{NAMESPACE}.svc.cluster.local:{PORT}"
"""Reaches Prometheus from pods and from commands run inside."""

_RBAC = "rbac.authorization.k8s.io"


def _metadata(*, namespaced: bool = True) -> dict[str, Any]:
    name = NAME if namespaced else f"testbed:{NAME}"
    return {"name": name, **({"namespace": NAMESPACE} if namespaced else {})}


def rights() -> list[dict[str, Any]]:
    """A service account that may find pods and nodes and read the kubelet's metrics."""
    rules = [
        {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]},
    ]
    role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": _metadata(namespaced=False)["name"]}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata()},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": _metadata(namespaced=False),
            "rules": rules,
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": _metadata(namespaced=False),
            "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
        },
    ]


def address() -> list[dict[str, Any]]:
    """A Service without selector, whose one endpoint is the node: Prometheus is no pod."""
    port = {"name": "http", "port": PORT, "protocol": "TCP"}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _metadata(),
            "spec": {"ports": [{**port, "targetPort": PORT}]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**_metadata(), "labels": {"kubernetes.io/service-name": NAME}},
            "addressType": "IPv4",
            "ports": [port],
            "endpoints": [{"addresses": [layout.ADDRESS], "conditions": {"ready": True}}],
        },
    ]


def everything() -> dict[str, Any]:
    """All of it as one List."""
    return {"apiVersion": "v1", "kind": "List", "items": [*rights(), *address()]}
