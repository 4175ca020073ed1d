"""What one engine pod asks of the allocator: devices, and what they must have in common."""

from __future__ import annotations

from dataclasses import dataclass

PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
"""Published by drivers that follow KEP-4381's list of standard attributes."""


LARGE_CLAIM = 12
"""Devices beyond which a claim that nearly fits makes the scheduler search through all ways to
allocate it, 10 s a try and for nobody else meanwhile: 8 GPUs with 8 adapters of which 7 are on
their node do, 6 with 3 do not (measured with Kubernetes 1.34)."""


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

    @property
    def large(self) -> bool:
        """Whether to look first, instead of letting the scheduler find out."""
        return sum(item.count for item in self.devices) > LARGE_CLAIM

    def unconstrained(self) -> ClaimRequest:
        return ClaimRequest(self.devices)

    def attributes_of(self, request: str) -> tuple[str, ...]:
        """Attributes that the devices of a request must have at all."""
        return tuple(c.attribute for c in self.constraints if request in c.requests)
