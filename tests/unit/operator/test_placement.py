from __future__ import annotations

from typing import Any

import pytest

from oasis_operator.desired.metadata import Component
from oasis_operator.desired.placement import (
    Placement,
    needs_claims,
    needs_inventory,
    placements,
)
from oasis_operator.topology.inventory import Inventory, inventory
from testbed.controlplane.fakedevices import Machine, device_classes, regular, resource_slices
from tests.unit.operator.make import deployment

DEVICES: dict[str, Any] = {"gpu": {}, "nic": {}}
GUARANTEED = {"limits": {"cpu": "8", "memory": "32Gi"}}


def cluster(*machines: Machine) -> Inventory:
    return inventory([s for m in machines for s in resource_slices(m)], device_classes())


STRAIGHT = cluster(regular("n", numa_nodes=2))
CROSSED = cluster(Machine("n", gpus=[0], nics=[1]))


def placed(
    found: Inventory | None,
    decode: dict[str, Any] | None = None,
    proven: Any = None,
    **numa: Any,
) -> Placement:
    od = deployment(
        prefill=None, decode={"devices": DEVICES, **(decode or {})}, topology={"numa": numa}
    )
    return placements(od, found, proven or {})[Component.DECODE]


def test_auto_claims_where_the_cluster_has_the_devices() -> None:
    found = placed(STRAIGHT)
    assert (found.mode, found.obstacle, found.hold) == ("dra", None, False)
    assert "DeviceClass gpu.nvidia.com" in found.why


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (None, "does not serve resource.k8s.io/v1"),
        (Inventory(), "no DeviceClass gpu.nvidia.com"),
        (cluster(), "no ResourceSlice has a gpu.nvidia.com device"),
    ],
)
def test_auto_leaves_it_to_the_kubelet_elsewhere_and_says_why(
    found: Inventory | None, why: str
) -> None:
    choice = placed(found)
    assert choice.mode == "kubelet"
    assert why in choice.why


def test_auto_has_nothing_to_claim_without_devices() -> None:
    od = deployment()
    choice = placements(od, STRAIGHT, {})[Component.PREFILL]
    assert (choice.mode, choice.obstacle) == ("kubelet", None)
    assert not needs_inventory(od)


def test_auto_stays_with_what_serves_while_a_driver_restarts() -> None:
    choice = placed(cluster(), proven={Component.DECODE: "dra"})
    assert choice.mode == "dra"
    assert "for now no ResourceSlice has a gpu.nvidia.com device" in choice.why
    assert placed(STRAIGHT, proven={Component.DECODE: "kubelet"}).mode == "kubelet"
    assert placed(STRAIGHT, proven={Component.DECODE: "dra"}) == placed(STRAIGHT)


def test_auto_calls_a_missing_adapter_an_obstacle_and_no_reason_to_leave() -> None:
    choice = placed(cluster(Machine("n", gpus=[0])), policy="required")
    assert choice.mode == "dra"
    assert choice.obstacle is not None
    assert choice.obstacle.reason == "NoSuchDevice"


def test_required_holds_what_can_never_be_aligned() -> None:
    choice = placed(CROSSED, policy="required")
    assert choice.hold
    assert choice.obstacle is not None
    assert choice.obstacle.reason == "DevicesCrossNuma"
    assert choice.obstacle.message.startswith("spec.decode.devices: no node has 1 gpu + 1 nic")


def test_preferred_tells_and_goes_on() -> None:
    choice = placed(CROSSED, policy="preferred")
    assert not choice.hold
    assert choice.obstacle is not None
    assert "unaligned" in choice.obstacle.message


def test_none_asks_for_devices_only() -> None:
    assert placed(CROSSED, policy="none").obstacle is None
    assert placed(cluster(Machine("n", gpus=[0])), policy="none").hold


def test_claims_without_the_api_are_held() -> None:
    choice = placed(None, mode="dra")
    assert choice.hold
    assert choice.obstacle is not None
    assert choice.obstacle.reason == "DraNotServed"


def test_what_is_in_use_is_waited_for() -> None:
    busy = Inventory(
        STRAIGHT.devices,
        STRAIGHT.classes,
        taken=frozenset(device.id for device in STRAIGHT.devices),
    )
    choice = placed(busy, policy="required")
    assert (choice.hold, choice.obstacle) == (False, None)
    assert choice.waiting is not None
    assert choice.waiting.reason == "DevicesInUse"


def test_a_large_claim_is_held_until_its_devices_are_free() -> None:
    eight = {"devices": {"gpu": {"count": 8}, "nic": {"count": 8}}}
    found = cluster(Machine("n", gpus=[0] * 8, nics=[0] * 8))
    busy = Inventory(found.devices, found.classes, taken=frozenset({found.devices[0].id}))
    choice = placed(busy, eight, policy="required")
    assert choice.hold
    assert choice.obstacle is None
    assert choice.waiting is not None
    assert choice.waiting.reason == "DevicesInUse"
    assert not placed(found, eight, policy="required").hold
    assert needs_claims(deployment(decode=eight))
    assert not needs_claims(deployment(decode={"devices": DEVICES}))


KUBELET = {"mode": "kubelet", "policy": "required"}
NIC = {"nic": {"resourceName": "example.com/vf"}}


def test_a_guaranteed_pod_can_be_pinned() -> None:
    choice = placed(None, {"resources": GUARANTEED, "devices": {"gpu": {}, **NIC}}, **KUBELET)
    assert (choice.hold, choice.obstacle) == (False, None)


@pytest.mark.parametrize(
    ("decode", "told"),
    [
        ({}, "container engine has no cpu limit"),
        (
            {
                "resources": GUARANTEED,
                "podTemplate": {"spec": {"initContainers": [{"name": "setup"}]}},
            },
            "container setup has no cpu limit",
        ),
        ({"resources": GUARANTEED, "devices": DEVICES}, "devices.nic has no resourceName"),
    ],
)
def test_what_loses_alignment_in_silence_is_refused(decode: dict[str, Any], told: str) -> None:
    choice = placed(None, decode, **KUBELET)
    assert choice.hold
    assert choice.obstacle is not None
    assert choice.obstacle.reason == "NotPinnable"
    assert told in choice.obstacle.message


@pytest.mark.parametrize("policy", ["required", "preferred", "none"])
def test_an_adapter_that_nobody_would_give_the_pods_is_told(policy: str) -> None:
    choice = placed(None, {"resources": GUARANTEED, "devices": {"nic": {}}}, policy=policy)
    assert (choice.mode, choice.hold) == ("kubelet", False)
    assert choice.obstacle is not None
    assert choice.obstacle.reason == "NotPinnable"
    assert "spec.decode.devices.nic has no resourceName" in choice.obstacle.message


@pytest.mark.parametrize("policy", ["required", "preferred"])
def test_a_pcie_root_that_the_kubelet_does_not_know_is_told(policy: str) -> None:
    given = {"resources": GUARANTEED, "devices": {"gpu": {}, **NIC}}
    choice = placed(None, given, policy=policy, align="pcieRoot")
    assert choice.mode == "kubelet"
    assert choice.hold is (policy == "required")
    assert choice.obstacle is not None
    assert choice.obstacle.reason == "NotPinnable"
    assert "pcieRoot" in choice.obstacle.message


@pytest.mark.parametrize(
    ("devices", "numa"),
    [
        ({"gpu": {}, **NIC}, {"policy": "none"}),
        ({"gpu": {}}, {"policy": "required"}),
        ({"gpu": {}, "cpu": {"count": 8}}, {"policy": "required"}),
    ],
    ids=["nothing is aligned", "one device", "CPUs are on no bus"],
)
def test_without_two_devices_to_align_a_pcie_root_is_no_obstacle(
    devices: dict[str, Any], numa: dict[str, str]
) -> None:
    given = {"resources": GUARANTEED, "devices": devices}
    assert placed(None, given, align="pcieRoot", **numa).obstacle is None


def test_where_the_engine_itself_will_judge_it_is_told_only() -> None:
    choice = placed(None, policy="required")
    assert not choice.hold
    assert choice.obstacle is not None


def test_without_a_device_there_is_nothing_to_be_far_from() -> None:
    assert placed(None, {"devices": None}, policy="preferred").obstacle is None
    cpus = {"devices": {"cpu": {"count": 8}}}
    assert placed(None, cpus, policy="preferred").obstacle is None
