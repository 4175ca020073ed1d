"""Who places the pods of a role, and what stands against it: decided before anything is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.desired.devices import AllocationMode
from oasis_operator.desired.metadata import Component, Manifest
from oasis_operator.desired.numa import NumaSettings, claim_request, numa_settings
from oasis_operator.desired.pod import engine_pod
from oasis_operator.desired.roles import RolePlan, role_plans
from oasis_operator.topology.inventory import Inventory
from oasis_operator.topology.pinning import pinning_problems
from oasis_operator.topology.probe import Finding, Verdict, probe
from oasis_operator.topology.request import PCIE_ROOT, ClaimRequest

NOT_SERVED = "DraNotServed"
NOT_PINNABLE = "NotPinnable"


@dataclass(frozen=True)
class Obstacle:
    """What keeps pods from being aligned. ``reason`` is that of a condition."""

    reason: str
    message: str


@dataclass(frozen=True)
class Placement:
    """``why`` is for the status; it does not change while the choice does not."""

    mode: AllocationMode
    why: str
    obstacle: Obstacle | None = None
    hold: bool = False
    """Pods made now would only be in the way: they can never run as the spec demands, or not
    before others go."""
    waiting: Obstacle | None = None
    """Why pods that are there may have to wait for their devices."""


Placements = Mapping[Component, Placement]


def placements(
    od: OasisDeployment,
    found: Inventory | None,
    proven: Mapping[Component, AllocationMode],
) -> dict[Component, Placement]:
    """One decision a role.

    Args:
        od: the custom resource.
        found: the cluster's devices; ``None`` where it does not serve resource.k8s.io/v1.
        proven: how pods that serve got their devices. ``auto`` stays with it, so that a driver
            which restarts moves no pod.
    """
    return {
        role.component: _placement(od, role, found, proven.get(role.component))
        for role in role_plans(od)
    }


def needs_inventory(od: OasisDeployment) -> bool:
    """Whether a role can be placed only with knowledge of the cluster's devices."""
    return any(
        role.spec.devices is not None and numa_settings(od, role).mode != "kubelet"
        for role in role_plans(od)
    )


def needs_claims(od: OasisDeployment) -> bool:
    """Whether a role can be placed only with knowledge of what is taken now."""
    requests = (claim_request(role.spec, numa_settings(od, role)) for role in role_plans(od))
    return any(request is not None and request.large for request in requests)


def _placement(
    od: OasisDeployment,
    role: RolePlan,
    found: Inventory | None,
    proven: AllocationMode | None,
) -> Placement:
    settings = numa_settings(od, role)
    request = claim_request(role.spec, settings)
    if found is not None:
        found = found.selected(role.spec.node_selector or {})
    mode, why = _mode(role, settings, request, found, proven)
    if mode == "kubelet" or request is None:
        return _by_kubelet(od, role, settings, why)
    return _by_claim(role, settings, request, found, why)


def _mode(
    role: RolePlan,
    settings: NumaSettings,
    request: ClaimRequest | None,
    found: Inventory | None,
    proven: AllocationMode | None,
) -> tuple[AllocationMode, str]:
    if request is None:
        return "kubelet", f"spec.{role.component}.devices names nothing to claim"
    if settings.mode != "auto":
        return settings.mode, f"the spec says mode {settings.mode}"
    mode, why = _offered(request, found)
    if proven is not None and proven != mode:
        return proven, (
            f"the pods that serve got their devices by {proven}; name a mode to move them, for "
            f"now {why}"
        )
    return mode, why


def _offered(request: ClaimRequest, found: Inventory | None) -> tuple[AllocationMode, str]:
    """What new pods would get, and what that follows from."""
    if found is None:
        return "kubelet", "the cluster does not serve resource.k8s.io/v1"
    # What the drivers of other devices lack is an obstacle; this one tells the two worlds apart.
    first = probe(found, ClaimRequest(request.devices[:1]))
    if first.verdict in (Verdict.NO_CLASS, Verdict.NO_DEVICE):
        return "kubelet", first.message
    return "dra", f"the cluster has DeviceClass {request.devices[0].class_name} with devices"


def _by_claim(
    role: RolePlan,
    settings: NumaSettings,
    request: ClaimRequest,
    found: Inventory | None,
    why: str,
) -> Placement:
    if found is None:
        message = (
            "the cluster does not serve resource.k8s.io/v1: use Kubernetes 1.34 or later, or set "
            "topology.numa.mode to kubelet"
        )
        return Placement("dra", why, Obstacle(NOT_SERVED, message), hold=True)
    tied, loose = probe(found, request), probe(found, request.unconstrained())
    hopeless = loose.unsatisfiable or (tied.unsatisfiable and settings.policy == "required")
    worst = loose if loose.unsatisfiable else tied
    obstacle = _obstacle(role, worst, hopeless) if worst.unsatisfiable else None
    waiting = _obstacle(role, tied, True) if tied.verdict is Verdict.BUSY else None
    hold = hopeless or (waiting is not None and request.large)
    return Placement("dra", why, obstacle, hold, waiting)


def _by_kubelet(od: OasisDeployment, role: RolePlan, settings: NumaSettings, why: str) -> Placement:
    problems = []
    if unpinned := _unpinned(od, role, settings):
        problems.append(
            f"the kubelet does not pin {role.component} pods: {'; '.join(unpinned)}; give every "
            "container equal requests and limits for memory and whole CPUs"
        )
    devices = role.spec.devices
    if devices is not None and devices.nic is not None and devices.nic.resource_name is None:
        problems.append(
            f"spec.{role.component}.devices.nic has no resourceName to ask the kubelet for, and "
            "the pods get no adapter: write it"
        )
    rooted = _ties_to_a_root(role, settings)
    if rooted:
        problems.append(
            f"the kubelet aligns the devices of {role.component} to NUMA nodes only, not to the "
            "pcieRoot that align asks for: install the DRA drivers, or set align to numaNode"
        )
    if not problems:
        return Placement("kubelet", why)
    # With mode auto the engine itself refuses to start where it is not aligned in fact: on a node
    # with one NUMA node it always is. Of PCIe roots it does not know.
    hold = settings.policy == "required" and (settings.mode == "kubelet" or rooted)
    return Placement("kubelet", why, Obstacle(NOT_PINNABLE, "; ".join(problems)), hold)


def _ties_to_a_root(role: RolePlan, settings: NumaSettings) -> bool:
    """Whether devices of the role are to be on one PCIe root."""
    request = claim_request(role.spec, settings)
    return request is not None and any(c.attribute == PCIE_ROOT for c in request.constraints)


def _unpinned(od: OasisDeployment, role: RolePlan, settings: NumaSettings) -> tuple[str, ...]:
    """What keeps the kubelet from aligning the pods, where that is asked for."""
    if settings.policy == "none":
        return ()
    template = engine_pod(od, role, image="", config_map="")
    if settings.policy == "preferred" and not _counts_devices(template):
        return ()  # Nothing that memory could be far away from.
    return pinning_problems(template)


def _counts_devices(template: Manifest) -> bool:
    """Whether a container asks for an extended resource, whose name has a domain."""
    return any(
        "/" in name
        for container in template["spec"]["containers"]
        for name in (container.get("resources") or {}).get("limits") or {}
    )


_REMEDIES = {
    Verdict.NO_CLASS: "install the driver, or correct deviceClassName",
    Verdict.NO_DEVICE: "see whether the driver runs on the nodes, or correct the selector",
    Verdict.NOT_ENOUGH: "lower the counts",
    Verdict.NO_ATTRIBUTE: "use a driver that does, name its attribute in topology.numa.attribute, "
    "or set the policy to preferred",
    Verdict.CROSSED: "lower the counts, or set the policy to preferred",
    Verdict.BUSY: "remove pods that hold devices, or lower replicas",
}


def _obstacle(role: RolePlan, finding: Finding, hold: bool) -> Obstacle:
    remedy = _REMEDIES[finding.verdict] if hold else "pods run all the same, unaligned"
    message = f"spec.{role.component}.devices: {finding.message}: {remedy}"
    return Obstacle(finding.verdict.value, message)
