"""What one engine pod asks of the allocator: devices, and what they must have in common."""

from __future__ import annotations

from dataclasses import dataclass

PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
"""Published by drivers that follow KEP-4381's list of standard attributes."""


@dataclass(frozen=True)
class DeviceRequest:
    """``count`` devices of one class."""

    name: str
    class_name: str
    count: int
    selectors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Constraint:
    """All devices of the named requests have the same value of an attribute."""

    attribute: str
    requests: tuple[str, ...]


@dataclass(frozen=True)
class ClaimRequest:
    """One claim: all of it comes from one node, or nothing does."""

    devices: tuple[DeviceRequest, ...]
    constraints: tuple[Constraint, ...] = ()

    def unconstrained(self) -> ClaimRequest:
        return ClaimRequest(self.devices)

    def attributes_of(self, request: str) -> tuple[str, ...]:
        """Attributes that the devices of a request must have at all."""
        return tuple(c.attribute for c in self.constraints if request in c.requests)
