"""Whether a claim can be allocated, and if not, why: the scheduler has one text for every cause.

The judgement errs to one side only. It says that a claim cannot be satisfied when that is so
whatever the scheduler does; what cannot be told here (see ``selectors``) counts as a fit.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from oasis_operator.topology.inventory import (
    EVERYWHERE,
    Device,
    DeviceClass,
    DeviceId,
    Inventory,
    Value,
)
from oasis_operator.topology.request import ClaimRequest, DeviceRequest
from oasis_operator.topology.selectors import may_match

UNBOUNDED = 1 << 20
"""How many requests a device that claims share may serve."""

Candidates = Mapping[str, Sequence[Device]]
"""Request name -> devices of one node that it may get."""


class Verdict(StrEnum):
    """The value is the reason of a condition."""

    FITS = "Fits"
    BUSY = "DevicesInUse"
    UNKNOWN = "DevicesNotPublished"
    NO_CLASS = "NoDeviceClass"
    NO_DEVICE = "NoSuchDevice"
    NOT_ENOUGH = "NotEnoughDevices"
    NO_ATTRIBUTE = "NoNumaAttribute"
    CROSSED = "DevicesCrossNuma"


UNSATISFIABLE = frozenset(
    {
        Verdict.NO_CLASS,
        Verdict.NO_DEVICE,
        Verdict.NOT_ENOUGH,
        Verdict.NO_ATTRIBUTE,
        Verdict.CROSSED,
    }
)


@dataclass(frozen=True)
class Finding:
    """``message`` says what is there and what was asked for."""

    verdict: Verdict
    message: str

    @property
    def unsatisfiable(self) -> bool:
        """However long one waits, unless drivers, nodes or the request change."""
        return self.verdict in UNSATISFIABLE


def probe(found: Inventory, request: ClaimRequest) -> Finding:
    """Judges one claim against all devices of the cluster."""
    missing = [item for item in request.devices if item.class_name not in found.classes]
    if missing:
        names = ", ".join(sorted({item.class_name for item in missing}))
        return Finding(Verdict.NO_CLASS, f"there is no DeviceClass {names}")
    if found.incomplete:
        pools = ", ".join(found.incomplete[:3])
        return Finding(
            Verdict.UNKNOWN, f"drivers have not yet published all devices of pool {pools}"
        )
    nodes = dict(_by_node(found.devices, request, found.classes))
    if any(_fits(have, request) for have in nodes.values()):
        free = dict(_by_node(_free(found.devices, found.taken), request, found.classes))
        if any(_fits(have, request) for have in free.values()):
            return Finding(Verdict.FITS, f"{_asked(request)} fit")
        return Finding(
            Verdict.BUSY, f"{_asked(request)} fit, but what they would take is in use now"
        )
    return _cause(nodes, request)


def _cause(nodes: Mapping[str, Candidates], request: ClaimRequest) -> Finding:
    """Why no node can: the first of what the claim needs that no node has."""
    for item in request.devices:
        if not any(have[item.name] for have in nodes.values()):
            of = f" that fulfils {' and '.join(item.selectors)}" if item.selectors else ""
            return Finding(
                Verdict.NO_DEVICE, f"no ResourceSlice has a {item.class_name} device{of}"
            )
    roomy = {node: have for node, have in nodes.items() if _fits(have, request.unconstrained())}
    if not roomy:
        most = "; ".join(
            f"{item.name}: {item.count} asked for, at most "
            f"{max(len(have[item.name]) for have in nodes.values())} on one node"
            for item in request.devices
        )
        return Finding(Verdict.NOT_ENOUGH, f"no node has {_asked(request)} ({most})")
    told = {node: _with_attributes(have, request) for node, have in roomy.items()}
    able = {node: have for node, have in told.items() if _fits(have, request.unconstrained())}
    if not able:
        return Finding(Verdict.NO_ATTRIBUTE, _without_attribute(roomy, told, request))
    node = min(able)
    return Finding(
        Verdict.CROSSED,
        f"no node has {_asked(request)} with one value of "
        f"{' and '.join(c.attribute for c in request.constraints)}: "
        f"{_spread(node, able[node], request)}",
    )


def _by_node(
    devices: Iterable[Device], request: ClaimRequest, classes: Mapping[str, DeviceClass]
) -> Iterator[tuple[str, Candidates]]:
    """Node -> candidates; what several nodes reach counts on each."""
    wanted = [
        (item, (*classes[item.class_name].selectors, *item.selectors)) for item in request.devices
    ]
    places: dict[str, dict[str, list[Device]]] = {}
    for device in devices:
        for item, selectors in wanted:
            if may_match(device, selectors):
                place = places.setdefault(device.node, {one.name: [] for one in request.devices})
                place[item.name].append(device)
    common = places.pop(EVERYWHERE, {})
    for node, have in (places or {EVERYWHERE: {}}).items():
        yield (
            node,
            {
                item.name: [*have.get(item.name, ()), *common.get(item.name, ())]
                for item in request.devices
            },
        )


def _free(devices: Iterable[Device], taken: frozenset[DeviceId]) -> Iterator[Device]:
    return (device for device in devices if device.shared or device.id not in taken)


def _fits(have: Candidates, request: ClaimRequest) -> bool:
    """Whether some choice of values for the constraints leaves every request its devices."""
    choices = [
        _values(constraint.attribute, have[constraint.requests[0]])
        for constraint in request.constraints
    ]
    return any(
        _assignable(_agreeing(have, request, values), request.devices)
        for values in itertools.product(*choices)
    )


def _agreeing(have: Candidates, request: ClaimRequest, values: Sequence[Value]) -> Candidates:
    """Candidates that have the chosen value of every constraint on their request."""
    chosen = list(zip(request.constraints, values, strict=True))
    asked = {
        name: [(c.attribute, value) for c, value in chosen if name in c.requests] for name in have
    }
    return {
        name: [
            device
            for device in devices
            if all(_same(device.attributes.get(of), value) for of, value in asked[name])
        ]
        for name, devices in have.items()
    }


def _values(attribute: str, devices: Iterable[Device]) -> list[Value]:
    """Each value once, in a fixed order; 1 and true are two."""
    found = {
        repr(d.attributes[attribute]): d.attributes[attribute]
        for d in devices
        if attribute in d.attributes
    }
    return [found[key] for key in sorted(found)]


def _same(one: Value | None, other: Value) -> bool:
    """The allocator compares types too: true is not 1."""
    return type(one) is type(other) and one == other


def _assignable(have: Candidates, requests: Sequence[DeviceRequest]) -> bool:
    """Whether each request gets its count, no device twice: Hall's theorem over the requests."""
    for size in range(1, len(requests) + 1):
        for some in itertools.combinations(requests, size):
            supply = {device.id: device for item in some for device in have[item.name]}
            room = sum(UNBOUNDED if device.shared else 1 for device in supply.values())
            if room < sum(item.count for item in some):
                return False
    return True


def _with_attributes(have: Candidates, request: ClaimRequest) -> Candidates:
    needed = {name: request.attributes_of(name) for name in have}
    return {
        name: [d for d in devices if all(of in d.attributes for of in needed[name])]
        for name, devices in have.items()
    }


def _asked(request: ClaimRequest) -> str:
    return " + ".join(f"{item.count} {item.name}" for item in request.devices)


def _without_attribute(
    roomy: Mapping[str, Candidates], told: Mapping[str, Candidates], request: ClaimRequest
) -> str:
    node = min(roomy)
    # There is one: with all its devices left this node would be able.
    item, device, attribute = next(
        (item, device, attribute)
        for item in request.devices
        for device in roomy[node][item.name]
        if device not in told[node][item.name]
        for attribute in request.attributes_of(item.name)
        if attribute not in device.attributes
    )
    return (
        f"the {item.name} devices of driver {device.driver} on {_place(node)} do not publish "
        f"{attribute}"
    )


def _spread(node: str, have: Candidates, request: ClaimRequest) -> str:
    """How many devices of each request each value has, on one node, of what cannot agree there."""
    alone = (ClaimRequest(request.devices, (one,)) for one in request.constraints)
    broken = [one.constraints[0] for one in alone if not _fits(have, one)]
    # Where each can be had but not all at once, whichever is shown tells but a part.
    constraint = (broken or request.constraints)[0]
    values = _values(
        constraint.attribute, (device for name in constraint.requests for device in have[name])
    )
    counts = [
        f"{value} has "
        + ", ".join(
            f"{sum(_same(d.attributes[constraint.attribute], value) for d in have[name])} {name}"
            for name in constraint.requests
        )
        for value in values
    ]
    return f"on {_place(node)} {'; '.join(counts)}"


def _place(node: str) -> str:
    return f"node {node}" if node != EVERYWHERE else "every node"
