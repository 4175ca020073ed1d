"""The NUMA settings of one role, and the device claim that they make."""

from __future__ import annotations

from dataclasses import dataclass

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.api.spec import Cpus, Gpu, Nic, NumaAlign, NumaMode, NumaPolicy, Role
from oasis_operator.desired.roles import RolePlan
from oasis_operator.topology.request import PCIE_ROOT, ClaimRequest, Constraint, DeviceRequest

GPU, NIC, CPU = "gpu", "nic", "cpu"


@dataclass(frozen=True)
class NumaSettings:
    """``topology.numa`` with what a role says differently."""

    policy: NumaPolicy
    mode: NumaMode
    align: NumaAlign
    attribute: str
    scheduler_name: str | None


def numa_settings(od: OasisDeployment, role: RolePlan) -> NumaSettings:
    """The settings that hold for a role."""
    common, own = od.spec.topology.numa, role.spec.numa
    return NumaSettings(
        policy=(own and own.policy) or common.policy,
        mode=(own and own.mode) or common.mode,
        align=(own and own.align) or common.align,
        attribute=common.attribute,
        scheduler_name=common.scheduler_name,
    )


def claim_request(role: Role, settings: NumaSettings) -> ClaimRequest | None:
    """What one pod claims; ``None`` for a role that names no devices.

    A PCIe root belongs to one NUMA node, and CPUs have none: with ``pcieRoot`` they are tied to
    the others by their node.
    """
    if role.devices is None:
        return None
    named = ((GPU, role.devices.gpu), (NIC, role.devices.nic), (CPU, role.devices.cpu))
    requests = tuple(_request(name, device) for name, device in named if device is not None)
    if settings.policy == "none":
        return ClaimRequest(requests)
    all_names = tuple(item.name for item in requests)
    groups = [(settings.attribute, all_names)]
    if settings.align == "pcieRoot":
        on_a_bus = tuple(name for name in all_names if name != CPU)
        groups = [(PCIE_ROOT, on_a_bus), *(groups if CPU in all_names else ())]
    counts = {item.name: item.count for item in requests}
    return ClaimRequest(
        requests,
        tuple(
            Constraint(attribute, names)
            for attribute, names in groups
            # One device always agrees with itself, and need not have the attribute.
            if sum(counts[name] for name in names) > 1
        ),
    )


def _request(name: str, device: Gpu | Nic | Cpus) -> DeviceRequest:
    selectors = (device.selector,) if device.selector else ()
    return DeviceRequest(name, device.device_class_name, device.count, selectors)
