"""The kinds of objects that the operator handles, and their paths in the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oasis_operator.api.crd import KIND, PLURAL
from oasis_operator.api.definition import API_VERSION
from oasis_operator.api.role_crd import ROLE_KIND, ROLE_PLURAL


@dataclass(frozen=True)
class ResourceKind:
    """One kind of the API."""

    api_version: str
    kind: str
    plural: str

    @property
    def group(self) -> str:
        """Empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        return self.api_version.rpartition("/")[2]

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """URL path of a collection, an object, or a part of one."""
        parts = [self._root, "namespaces", namespace, self.plural, name, subresource]
        return "/".join(part for part in parts if part)

    @property
    def everywhere(self) -> str:
        """URL path of the collection over all namespaces."""
        return f"{self._root}/{self.plural}"

    def typed(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """An item of a list as an object: the API server leaves apiVersion and kind out there."""
        return {**item, "apiVersion": self.api_version, "kind": self.kind}

    @property
    def _root(self) -> str:
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.api_version}"


OASIS_DEPLOYMENT = ResourceKind(API_VERSION, KIND, PLURAL)
OASIS_ROLE = ResourceKind(API_VERSION, ROLE_KIND, ROLE_PLURAL)
LEADER_WORKER_SET = ResourceKind(
    "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "leaderworkersets"
)
POD = ResourceKind("v1", "Pod", "pods")
EVENT = ResourceKind("v1", "Event", "events")
LEASE = ResourceKind("coordination.k8s.io/v1", "Lease", "leases")
CHILDREN = (
    ResourceKind("apps/v1", "Deployment", "deployments"),
    ResourceKind("v1", "Service", "services"),
    ResourceKind("v1", "ConfigMap", "configmaps"),
    ResourceKind("v1", "ServiceAccount", "serviceaccounts"),
    ResourceKind("rbac.authorization.k8s.io/v1", "Role", "roles"),
    ResourceKind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings"),
    ResourceKind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    ResourceKind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
)
OPTIONAL_CHILDREN = (
    OASIS_ROLE,
    ResourceKind("resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates"),
    LEADER_WORKER_SET,
)
"""Not served by every cluster."""
CHILD_BY_KIND = {kind.kind: kind for kind in (*CHILDREN, *OPTIONAL_CHILDREN)}
NODE = ResourceKind("v1", "Node", "nodes")
RESOURCE_SLICE = ResourceKind("resource.k8s.io/v1", "ResourceSlice", "resourceslices")
DEVICE_CLASS = ResourceKind("resource.k8s.io/v1", "DeviceClass", "deviceclasses")
RESOURCE_CLAIM = ResourceKind("resource.k8s.io/v1", "ResourceClaim", "resourceclaims")
