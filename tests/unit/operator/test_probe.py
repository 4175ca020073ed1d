from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasis_operator.topology.inventory import (
    EVERYWHERE,
    Device,
    DeviceClass,
    DeviceId,
    Inventory,
    inventory,
)
from oasis_operator.topology.probe import Finding, Verdict, probe
from oasis_operator.topology.request import PCIE_ROOT, ClaimRequest, Constraint, DeviceRequest
from testbed.controlplane.fakedevices import (
    NUMA_NODE,
    Machine,
    device_classes,
    regular,
    resource_slices,
)


def cluster(*machines: Machine) -> Inventory:
    return inventory([s for m in machines for s in resource_slices(m)], device_classes())


def asked(*, gpu: int = 0, nic: int = 0, cpu: int = 0, numa: bool = True) -> ClaimRequest:
    classes = {"gpu": "gpu.nvidia.com", "nic": "rdma", "cpu": "dra.cpu"}
    counts = {"gpu": gpu, "nic": nic, "cpu": cpu}
    requests = tuple(DeviceRequest(n, classes[n], c) for n, c in counts.items() if c)
    names = tuple(item.name for item in requests)
    return ClaimRequest(requests, (Constraint(NUMA_NODE, names),) if numa else ())


def judged(found: Inventory, gpu: int = 0, nic: int = 0, cpu: int = 0) -> Verdict:
    return probe(found, asked(gpu=gpu, nic=nic, cpu=cpu)).verdict


@pytest.mark.parametrize("numa_nodes", [2, 4, 8])
def test_what_one_numa_node_has_fits(numa_nodes: int) -> None:
    found = cluster(regular("n", numa_nodes=numa_nodes, each=2))
    assert judged(found, gpu=2, nic=2, cpu=4) is Verdict.FITS
    assert judged(found, gpu=3, nic=1) is Verdict.CROSSED


def test_devices_on_different_numa_nodes_cross_with_the_numbers_of_each() -> None:
    finding = probe(cluster(Machine("n", gpus=[0, 0], nics=[1])), asked(gpu=1, nic=1))
    assert finding.verdict is Verdict.CROSSED
    assert "on node n 0 has 2 gpu, 0 nic; 1 has 0 gpu, 1 nic" in finding.message


BY_ROOT = (Constraint(PCIE_ROOT, ("gpu", "nic")), Constraint(NUMA_NODE, ("gpu", "nic", "cpu")))


@pytest.mark.parametrize(
    ("machine", "told"),
    [
        # Same numbers share a root: here the adapters of the GPUs' node have others.
        (Machine("n", gpus=[0], nics=[1, 0], cpus=[0]), "pci0000:00 has 1 gpu, 0 nic"),
        (Machine("n", gpus=[0], nics=[0], cpus=[1]), "0 has 1 gpu, 1 nic, 0 cpu"),
    ],
    ids=["root", "node"],
)
def test_the_numbers_are_of_what_cannot_agree(machine: Machine, told: str) -> None:
    request = ClaimRequest(asked(gpu=1, nic=1, cpu=1).devices, BY_ROOT)
    finding = probe(cluster(machine), request)
    assert finding.verdict is Verdict.CROSSED
    assert told in finding.message


def test_one_straight_node_among_crossed_ones_is_enough() -> None:
    crossed, straight = Machine("a", gpus=[0], nics=[1]), Machine("b", gpus=[1], nics=[1])
    assert judged(cluster(crossed, straight), gpu=1, nic=1) is Verdict.FITS


def test_a_driver_that_publishes_no_numa_node_is_named() -> None:
    finding = probe(cluster(Machine("n", gpus=[0], nics=[-1])), asked(gpu=1, nic=1))
    assert finding.verdict is Verdict.NO_ATTRIBUTE
    assert f"driver dra.net on node n do not publish {NUMA_NODE}" in finding.message


def test_two_half_nodes_are_not_enough_and_the_numbers_say_so() -> None:
    found = cluster(Machine("a", gpus=[0, 0]), Machine("b", gpus=[0]))
    finding = probe(found, asked(gpu=3))
    assert finding.verdict is Verdict.NOT_ENOUGH
    assert "gpu: 3 asked for, at most 2 on one node" in finding.message


def test_a_class_that_is_not_there_is_named() -> None:
    finding = probe(Inventory(), asked(gpu=1))
    assert finding == Finding(Verdict.NO_CLASS, "there is no DeviceClass gpu.nvidia.com")


def test_a_class_without_devices_is_named() -> None:
    assert judged(cluster(Machine("n", gpus=[0])), gpu=1, nic=1) is Verdict.NO_DEVICE


def test_while_a_driver_publishes_nothing_is_known() -> None:
    found = cluster(Machine("n", gpus=[0]))
    partial = Inventory(found.devices, found.classes, incomplete=("n",))
    assert judged(partial, gpu=8) is Verdict.UNKNOWN


def test_what_is_in_use_is_no_fault_of_the_request() -> None:
    found = cluster(Machine("n", gpus=[0]))
    busy = Inventory(found.devices, found.classes, taken=frozenset({found.devices[0].id}))
    assert judged(busy, gpu=1) is Verdict.BUSY
    assert not probe(busy, asked(gpu=1)).unsatisfiable


def test_a_device_that_claims_share_serves_all_of_them() -> None:
    device = Device(DeviceId("gpu.nvidia.com", "n", "gpu-0"), "n", {NUMA_NODE: 0}, shared=True)
    found = Inventory((device,), cluster().classes, taken=frozenset({device.id}))
    assert judged(found, gpu=4) is Verdict.FITS


def test_the_near_miss_that_blocks_the_scheduler_for_ten_seconds_is_found_at_once() -> None:
    found = cluster(Machine("n", gpus=[0] * 8, nics=[0] * 7 + [1]))
    assert judged(found, gpu=8, nic=8) is Verdict.CROSSED


CLASSES = {name: DeviceClass(name, (f'device.driver == "{name}"',)) for name in ("x", "y")}
CLASSES["any"] = DeviceClass("any", ("size(device.attributes) >= 0",))
ATTRIBUTES = (NUMA_NODE, PCIE_ROOT)
DEVICES = st.lists(
    st.tuples(
        st.sampled_from("xy"),
        st.sampled_from(["a", "b", EVERYWHERE]),
        st.dictionaries(st.sampled_from(ATTRIBUTES), st.sampled_from([0, 1, True]), max_size=2),
    ),
    max_size=6,
)
REQUESTS = st.lists(
    st.tuples(st.sampled_from(["x", "y", "any"]), st.integers(1, 2)), min_size=1, max_size=2
)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Inventory, ClaimRequest]:
    devices = tuple(
        Device(DeviceId(driver, "p", f"d{number}"), node, attributes)
        for number, (driver, node, attributes) in enumerate(draw(DEVICES))
    )
    requests = tuple(
        DeviceRequest(f"r{number}", name, count)
        for number, (name, count) in enumerate(draw(REQUESTS))
    )
    names = st.lists(st.sampled_from([r.name for r in requests]), min_size=1, unique=True)
    constraints = tuple(
        Constraint(attribute, tuple(draw(names)))
        for attribute in draw(st.lists(st.sampled_from(ATTRIBUTES), unique=True))
    )
    return Inventory(devices, CLASSES), ClaimRequest(requests, constraints)


def allocations(found: Inventory, request: ClaimRequest) -> Iterator[dict[str, list[Device]]]:
    """Every way to give out devices of one node, tried one after the other."""
    slots = [item.name for item in request.devices for _ in range(item.count)]
    class_of = {item.name: item.class_name for item in request.devices}
    for node in ("a", "b"):
        reachable = [d for d in found.devices if d.node in (node, EVERYWHERE)]
        for chosen in itertools.permutations(reachable, len(slots)):
            if all(
                class_of[slot] in ("any", device.driver)
                for slot, device in zip(slots, chosen, strict=True)
            ):
                given: dict[str, list[Device]] = {name: [] for name in slots}
                for slot, device in zip(slots, chosen, strict=True):
                    given[slot].append(device)
                yield given


def agrees(given: dict[str, list[Device]], request: ClaimRequest) -> bool:
    for constraint in request.constraints:
        values = [
            device.attributes.get(constraint.attribute)
            for name in constraint.requests
            for device in given[name]
        ]
        if None in values or len({repr(value) for value in values}) > 1:
            return False
    return True


@given(problems())
def test_it_fits_exactly_where_some_allocation_does(
    problem: tuple[Inventory, ClaimRequest],
) -> None:
    found, request = problem
    possible = any(agrees(given, request) for given in allocations(found, request))
    assert (probe(found, request).verdict is Verdict.FITS) == possible


@given(problems())
def test_the_cause_is_the_one_that_holds(problem: tuple[Inventory, ClaimRequest]) -> None:
    found, request = problem
    verdict = probe(found, request).verdict
    loose = probe(found, request.unconstrained()).verdict
    if verdict in (Verdict.CROSSED, Verdict.NO_ATTRIBUTE):
        assert loose is Verdict.FITS
    else:
        assert loose is verdict


@given(problems())
def test_more_devices_never_make_it_worse(problem: tuple[Inventory, ClaimRequest]) -> None:
    found, request = problem
    fewer = Inventory(found.devices[1:], found.classes)
    if probe(fewer, request).verdict is Verdict.FITS:
        assert probe(found, request).verdict is Verdict.FITS
