"""How an engine's pod asks for its devices: a claim, or resources that the kubelet counts."""

from __future__ import annotations

from typing import Literal

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.api.spec import Devices
from oasis_operator.desired.claim_template import claim_template
from oasis_operator.desired.metadata import Manifest
from oasis_operator.desired.numa import numa_settings
from oasis_operator.desired.roles import RolePlan

AllocationMode = Literal["dra", "kubelet"]
"""Who allocates: the two worlds do not mix on a node, for a claimed device gives the kubelet's
topology manager no hint."""

CLAIM = "devices"
"""Name of the claim inside the pod."""


def with_devices(
    spec: Manifest, od: OasisDeployment, role: RolePlan, mode: AllocationMode
) -> Manifest:
    """A pod spec whose first container gets the role's devices."""
    engine, *others = spec["containers"]
    scheduler = numa_settings(od, role).scheduler_name
    if scheduler:
        spec = spec | {"schedulerName": scheduler}
    if mode == "dra":
        template = claim_template(od, role)
        if template is None:
            return spec
        resources = engine["resources"] | {"claims": [{"name": CLAIM}]}
        claim = {"name": CLAIM, "resourceClaimTemplateName": template["metadata"]["name"]}
        spec = spec | {"resourceClaims": [claim]}
    else:
        resources = _counted(engine["resources"], role.spec.devices)
    return spec | {"containers": [engine | {"resources": resources}, *others]}


def _counted(resources: Manifest, devices: Devices | None) -> Manifest:
    """The role's own ``resources`` win over what its devices say."""
    if devices is None:
        return resources
    counts = {}
    if devices.gpu:
        counts[devices.gpu.resource_name] = str(devices.gpu.count)
    if devices.nic and devices.nic.resource_name:
        counts[devices.nic.resource_name] = str(devices.nic.count)
    if devices.cpu:
        counts["cpu"] = str(devices.cpu.count)
    return resources | {kind: counts | resources.get(kind, {}) for kind in ("requests", "limits")}
