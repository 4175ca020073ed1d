"""OasisRoles: what an external autoscaler scales."""

from __future__ import annotations

from oasis_operator.api.definition import API_VERSION
from oasis_operator.api.resource import OasisDeployment
from oasis_operator.api.role_crd import ROLE_KIND
from oasis_operator.desired.metadata import Component, Manifest, component_name, manifest


def scale_target(od: OasisDeployment, component: Component) -> Manifest:
    """Without ``spec.replicas``: what is applied is the operator's, and these are not."""
    return manifest(od, API_VERSION, ROLE_KIND, component_name(od, component), component)


def is_scaled_externally(od: OasisDeployment) -> bool:
    return od.spec.autoscaling is not None and od.spec.autoscaling.owner == "external"
