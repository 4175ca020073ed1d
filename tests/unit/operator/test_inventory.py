from __future__ import annotations

from typing import Any

from oasis_operator.topology.inventory import EVERYWHERE, DeviceId, inventory
from testbed.controlplane.fakedevices import NUMA_NODE, Machine, device_classes, resource_slices


def slice_of(**changes: Any) -> dict[str, Any]:
    spec = {
        "driver": "gpu.example.com",
        "nodeName": "a",
        "pool": {"name": "a", "generation": 2, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}],
    }
    return {"spec": {key: value for key, value in (spec | changes).items() if value is not None}}


def test_attributes_without_a_domain_are_the_drivers_own() -> None:
    found = inventory(resource_slices(Machine("n", gpus=[1], nics=[0])), device_classes())
    nic, gpu = found.devices
    assert gpu.attributes[NUMA_NODE] == 1
    assert nic.attributes["dra.net/rdma"] is True
    assert (gpu.id, gpu.node) == (DeviceId("gpu.nvidia.com", "n", "gpu-0"), "n")


def test_a_class_is_its_expressions() -> None:
    classes = inventory([], device_classes()).classes
    assert len(classes["rdma"].selectors) == 2
    assert classes["dra.cpu"].selectors == ('device.driver == "dra.cpu"',)


def test_slices_of_an_older_generation_do_not_count() -> None:
    old = slice_of(
        pool={"name": "a", "generation": 1, "resourceSliceCount": 1},
        devices=[{"name": "gpu-0"}, {"name": "gpu-1"}],
    )
    assert len(inventory([old, slice_of()], []).devices) == 1


def test_a_pool_of_which_slices_are_missing_is_incomplete() -> None:
    half = slice_of(pool={"name": "a", "generation": 2, "resourceSliceCount": 2})
    assert inventory([half], []).incomplete == ("a",)
    assert inventory([half, half], []).incomplete == ()


def test_a_device_that_several_nodes_reach_is_everywhere() -> None:
    (device,) = inventory([slice_of(nodeName=None, allNodes=True)], []).devices
    assert device.node == EVERYWHERE


def test_a_device_may_name_its_own_node() -> None:
    spec = slice_of(
        nodeName=None, perDeviceNodeSelection=True, devices=[{"name": "gpu-0", "nodeName": "b"}]
    )
    assert inventory([spec], []).devices[0].node == "b"


def test_what_claims_hold_is_taken() -> None:
    results = [{"request": "gpu", "driver": "d", "pool": "p", "device": "x"}]
    held = {"status": {"allocation": {"devices": {"results": results}}}}
    assert inventory([], [], [held, {"status": {}}, {}]).taken == {DeviceId("d", "p", "x")}


def test_a_node_selector_leaves_the_devices_of_its_nodes() -> None:
    slices = [*resource_slices(Machine("a", gpus=[0])), *resource_slices(Machine("b", gpus=[0]))]
    nodes: list[dict[str, Any]] = [
        {"metadata": {"name": "a", "labels": {"pool": "x"}}},
        {"metadata": {"name": "b"}},
    ]
    found = inventory([*slices, slice_of(nodeName=None, allNodes=True)], [], (), nodes)
    assert {d.node for d in found.selected({"pool": "x"}).devices} == {"a", EVERYWHERE}
    assert found.selected({}) == found
