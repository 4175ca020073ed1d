"""What the router may do in the cluster: find the pods of its namespace."""

from __future__ import annotations

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.desired.metadata import Component, Manifest, component_name, manifest


def service_account(od: OasisDeployment) -> Manifest:
    """With its token in the pods: without it a router finds no engine."""
    name = component_name(od, Component.ROUTER)
    account = manifest(od, "v1", "ServiceAccount", name, Component.ROUTER)
    return account | {"automountServiceAccountToken": True}


def role(od: OasisDeployment) -> Manifest:
    name = component_name(od, Component.ROUTER)
    return manifest(od, "rbac.authorization.k8s.io/v1", "Role", name, Component.ROUTER) | {
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
    }


def role_binding(od: OasisDeployment) -> Manifest:
    name = component_name(od, Component.ROUTER)
    return manifest(od, "rbac.authorization.k8s.io/v1", "RoleBinding", name, Component.ROUTER) | {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": od.namespace}],
    }
