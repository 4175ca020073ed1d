"""The devices of a cluster, as its ResourceSlices publish them.

Source: ``ResourceSliceSpec`` of resource.k8s.io/v1. A pool is several slices of one generation;
while some of them are missing the scheduler allocates nothing from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

Value = int | bool | str

EVERYWHERE = ""
"""Node of a device that several nodes can reach."""


class DeviceId(NamedTuple):
    """What the result of an allocation names."""

    driver: str
    pool: str
    name: str


@dataclass(frozen=True)
class Device:
    """One device that a claim can get."""

    id: DeviceId
    node: str
    """:data:`EVERYWHERE` where the slice does not name one node."""
    attributes: Mapping[str, Value] = field(default_factory=dict)
    """By qualified name: one without a domain belongs to the driver."""
    shared: bool = False
    """Several claims may have it at once."""

    @property
    def driver(self) -> str:
        return self.id.driver


@dataclass(frozen=True)
class DeviceClass:
    """CEL expressions, all of which a device of the class fulfils."""

    name: str
    selectors: tuple[str, ...] = ()

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> DeviceClass:
        return cls(body["metadata"]["name"], selectors_of(body.get("spec") or {}))


@dataclass(frozen=True)
class Inventory:
    """All devices and classes, at one moment."""

    devices: tuple[Device, ...] = ()
    classes: Mapping[str, DeviceClass] = field(default_factory=dict)
    incomplete: tuple[str, ...] = ()
    """Pools whose newest generation has not been published as a whole."""
    taken: frozenset[DeviceId] = frozenset()
    """Allocated to a claim."""
    nodes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels of the nodes that there are."""

    def selected(self, node_selector: Mapping[str, str]) -> Inventory:
        """With the devices that pods of this node selector can reach."""
        if not node_selector:
            return self
        chosen = {
            name for name, labels in self.nodes.items() if node_selector.items() <= labels.items()
        }
        return replace(
            self, devices=tuple(d for d in self.devices if d.node in chosen | {EVERYWHERE})
        )


def selectors_of(body: Mapping[str, Any]) -> tuple[str, ...]:
    """The expressions of a list of device selectors."""
    return tuple(item["cel"]["expression"] for item in body.get("selectors") or [] if "cel" in item)


def inventory(
    slices: Iterable[Mapping[str, Any]],
    classes: Iterable[Mapping[str, Any]],
    claims: Iterable[Mapping[str, Any]] = (),
    nodes: Iterable[Mapping[str, Any]] = (),
) -> Inventory:
    """From the objects as the API server lists them; slices of an older generation do not count.

    Of nodes only the metadata is looked at.
    """
    pools: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for body in slices:
        spec = body["spec"]
        pools.setdefault((spec["driver"], spec["pool"]["name"]), []).append(spec)
    devices: list[Device] = []
    incomplete: list[str] = []
    for (_, name), specs in sorted(pools.items()):
        newest = max(spec["pool"]["generation"] for spec in specs)
        current = [spec for spec in specs if spec["pool"]["generation"] == newest]
        if len(current) < max(spec["pool"]["resourceSliceCount"] for spec in current):
            incomplete.append(name)
        for spec in current:
            devices.extend(_devices(spec))
    found = (DeviceClass.of(body) for body in classes)
    metadata = [body["metadata"] for body in nodes]
    return Inventory(
        tuple(devices),
        {item.name: item for item in found},
        tuple(incomplete),
        _taken(claims),
        {item["name"]: item.get("labels") or {} for item in metadata},
    )


def _devices(spec: Mapping[str, Any]) -> Iterable[Device]:
    driver, pool = spec["driver"], spec["pool"]["name"]
    for item in spec.get("devices") or []:
        yield Device(
            DeviceId(driver, pool, item["name"]),
            item.get("nodeName") or spec.get("nodeName") or EVERYWHERE,
            {
                name if "/" in name else f"{driver}/{name}": _value(value)
                for name, value in (item.get("attributes") or {}).items()
            },
            bool(item.get("allowMultipleAllocations")),
        )


def _value(attribute: Mapping[str, Value]) -> Value:
    """Exactly one of int, bool, string and version is set."""
    return next(iter(attribute.values()))


def _taken(claims: Iterable[Mapping[str, Any]]) -> frozenset[DeviceId]:
    return frozenset(
        DeviceId(result["driver"], result["pool"], result["device"])
        for claim in claims
        for result in (
            ((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}
        ).get("results")
        or []
    )
