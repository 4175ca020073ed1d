"""ResourceClaimTemplate of a role: what the scheduler allocates for each of its pods.

Source: resource.k8s.io/v1. The spec of a template cannot be changed, so another claim is another
template, and the content hash in its name makes it another revision too.
"""

from __future__ import annotations

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.desired.metadata import Manifest, component_name, manifest
from oasis_operator.desired.numa import claim_request, numa_settings
from oasis_operator.desired.revision import content_hash
from oasis_operator.desired.roles import RolePlan
from oasis_operator.topology.request import ClaimRequest, DeviceRequest

NEAR, ANY = "near", "any"
"""The alternatives of a preferred request; the result of an allocation names the one taken."""


def claim_template(od: OasisDeployment, role: RolePlan) -> Manifest | None:
    """The template; ``None`` for a role that names no devices."""
    settings = numa_settings(od, role)
    request = claim_request(role.spec, settings)
    if request is None:
        return None
    devices = _devices(request, preferred=settings.policy == "preferred")
    name = f"{component_name(od, role.component)}-{content_hash(devices)}"
    # Without the revision's label: two revisions that claim the same share it.
    return manifest(od, "resource.k8s.io/v1", "ResourceClaimTemplate", name, role.component) | {
        "spec": {"spec": {"devices": devices}}
    }


def _devices(request: ClaimRequest, *, preferred: bool) -> Manifest:
    """With ``preferred``, what a constraint ties may also be taken from anywhere."""
    loose = _loose(request) if preferred else frozenset()
    devices: Manifest = {
        "requests": [
            {"name": item.name, "firstAvailable": [_ask(item, NEAR), _ask(item, ANY)]}
            if item.name in loose
            else {"name": item.name, "exactly": _exactly(item)}
            for item in request.devices
        ]
    }
    if request.constraints:
        devices["constraints"] = [
            {
                "matchAttribute": constraint.attribute,
                "requests": [
                    f"{name}/{NEAR}" if name in loose else name for name in constraint.requests
                ],
            }
            for constraint in request.constraints
        ]
    return devices


def _loose(request: ClaimRequest) -> frozenset[str]:
    """Requests with alternatives: all that are tied, but for a single device that comes first.

    It is what the others are near to; a second one could itself be far away.
    """
    tied = [i for i in request.devices if any(i.name in c.requests for c in request.constraints)]
    anchor = tied[0].name if tied and tied[0].count == 1 else None
    return frozenset(item.name for item in tied if item.name != anchor)


def _ask(item: DeviceRequest, name: str) -> Manifest:
    return {"name": name, **_exactly(item)}


def _exactly(item: DeviceRequest) -> Manifest:
    asked: Manifest = {
        "deviceClassName": item.class_name,
        "allocationMode": "ExactCount",
        "count": item.count,
    }
    if item.selectors:
        asked["selectors"] = [{"cel": {"expression": text}} for text in item.selectors]
    return asked
