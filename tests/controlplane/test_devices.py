"""Devices by NUMA node: real scheduler, real allocation, fake devices on fake nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from oasis_operator.desired.metadata import COMPONENT_LABEL
from testbed import wait
from testbed.controlplane.bed import ControlPlane
from testbed.controlplane.fakedevices import (
    NUMA_NODE,
    PCIE_ROOT,
    Machine,
    device_classes,
    resource_slices,
)
from testbed.controlplane.fakenodes import fake_node
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.world import SECONDS, Manifest, World, fake, spec

pytestmark = pytest.mark.usefixtures("operator", "machines")

LABEL = "test.oasiskv.io/machine"
ONE_OF_EACH = {"gpu": {}, "nic": {}, "cpu": {"count": 2}}


def _shuffled(numa_nodes: int) -> Machine:
    """One GPU, one adapter and two CPUs a node, the adapters in the opposite order of the GPUs."""
    nodes = range(numa_nodes)
    return Machine(
        f"numa-{numa_nodes}", list(nodes), list(reversed(nodes)), [n for n in nodes for _ in "ab"]
    )


MACHINES = (
    *map(_shuffled, (2, 4, 8)),
    Machine("big", gpus=[0] * 8, nics=[0] * 8),
    Machine("crossed", gpus=[0, 0], nics=[1, 1], cpus=[0, 0, 1, 1]),
    Machine("rooted", gpus=[0, 0, 1, 1], nics=[0, 0, 1, 1], cpus=[0] * 4 + [1] * 4),
    Machine("silent", gpus=[0, 1], nics=[-1, -1], cpus=[0, 0, 1, 1]),
)


def _node(name: str) -> Manifest:
    """A node for those who ask for it."""
    node = fake_node(name)
    node["metadata"]["labels"][LABEL] = name
    node["spec"] = {"taints": [{"key": LABEL, "value": name, "effect": "NoSchedule"}]}
    return node


def _listed(items: list[Manifest]) -> Manifest:
    return {"apiVersion": "v1", "kind": "List", "items": items}


@pytest.fixture(scope="module")
def machines(control_plane: ControlPlane) -> Iterator[None]:
    items = [*device_classes(), *(_node(machine.name) for machine in MACHINES)]
    items += [item for machine in MACHINES for item in resource_slices(machine)]
    control_plane.kubectl("apply", "-f", "-", manifest=_listed(items))
    yield
    control_plane.kubectl("delete", "-f", "-", "--wait=false", manifest=_listed(items))


def on(machine: str, devices: Manifest, role: Manifest | None = None, **numa: str) -> Manifest:
    """A spec of one role whose pods run on one machine."""
    decode = {
        "devices": devices,
        "nodeSelector": {LABEL: machine},
        "tolerations": [{"key": LABEL, "operator": "Exists"}],
        **(role or {}),
    }
    return spec(
        prefill=None,
        engine={"tensorParallelSize": devices.get("gpu", {}).get("count", 1)},
        decode=decode,
        topology={"numa": {"policy": "required", **numa}},
    )


def allocated(world: World, attribute: str = NUMA_NODE) -> list[dict[str, list[str]]]:
    """For each claim, the values of an attribute by request."""
    return [_by_request(claim, attribute) for claim in world.get("resourceclaims")["items"]]


def _by_request(claim: Manifest, attribute: str) -> dict[str, list[str]]:
    published = {
        (item["spec"]["driver"], item["spec"]["nodeName"], device["name"]): device["attributes"]
        for machine in MACHINES
        for item in resource_slices(machine)
        for device in item["spec"]["devices"]
    }
    found: dict[str, list[str]] = {}
    for result in claim["status"]["allocation"]["devices"]["results"]:
        attributes = published[result["driver"], result["pool"], result["device"]]
        found.setdefault(result["request"], []).append(str(attributes.get(attribute)))
    return found


def engines(world: World) -> list[Any]:
    return [
        item for item in world.owned("deployments") if "-router" not in item["metadata"]["name"]
    ]


@pytest.mark.parametrize("numa_nodes", [2, 4, 8])
def test_every_pod_has_its_devices_on_one_numa_node(world: World, numa_nodes: int) -> None:
    world.apply("chat", on(f"numa-{numa_nodes}", ONE_OF_EACH, {"replicas": numa_nodes}))
    world.until_ready("chat")
    claims = allocated(world)
    assert len(claims) == numa_nodes
    places = [{value for values in claim.values() for value in values} for claim in claims]
    assert all(len(place) == 1 for place in places), claims
    assert len(set(map(frozenset, places))) == numa_nodes
    placement = world.status("chat")["placement"]["decode"]
    assert placement["mode"] == "dra"
    assert "DeviceClass gpu.nvidia.com" in placement["why"]


def test_every_pod_has_its_devices_on_one_pcie_root_of_their_numa_node(world: World) -> None:
    world.apply("chat", on("rooted", ONE_OF_EACH, {"replicas": 4}, align="pcieRoot"))
    world.until_ready("chat")
    roots = [(claim["gpu"], claim["nic"]) for claim in allocated(world, PCIE_ROOT)]
    assert all(gpu == nic for gpu, nic in roots), roots
    assert len({tuple(gpu) for gpu, _ in roots}) == 4
    assert all(len({v for values in c.values() for v in values}) == 1 for c in allocated(world))


def test_devices_of_one_numa_node_on_two_pcie_roots_are_told_by_their_roots(world: World) -> None:
    pair = {"gpu": {"count": 2}}
    world.apply("chat", on("rooted", pair, mode="dra", align="pcieRoot"))
    found = world.until_condition("chat", "DecodeReady", "False", "DevicesCrossNuma")
    assert f"one value of {PCIE_ROOT}" in found["message"]
    assert "pci0000:00 has 1 gpu; pci0000:01 has 1 gpu" in found["message"]
    assert world.pods("chat", "decode") == []
    world.apply("chat", on("rooted", pair, mode="dra", align="numaNode"))
    world.until_ready("chat")


@pytest.mark.parametrize(
    ("machine", "devices", "reason", "told"),
    [
        ("crossed", ONE_OF_EACH, "DevicesCrossNuma", "0 has 2 gpu, 0 nic"),
        ("numa-2", {"gpu": {"count": 2}}, "DevicesCrossNuma", "0 has 1 gpu; 1 has 1 gpu"),
        ("silent", ONE_OF_EACH, "NoNumaAttribute", f"do not publish {NUMA_NODE}"),
        ("numa-2", {"gpu": {"count": 9}}, "NotEnoughDevices", "at most 2 on one node"),
        ("numa-2", {"gpu": {"deviceClassName": "tpu"}}, "NoDeviceClass", "no DeviceClass tpu"),
    ],
)
def test_what_no_node_can_give_is_told_and_makes_no_pods(
    world: World, machine: str, devices: Manifest, reason: str, told: str
) -> None:
    world.apply("chat", on(machine, devices, mode="dra"))
    found = world.until_condition("chat", "DecodeReady", "False", reason)
    assert told in found["message"]
    assert world.condition("chat", "NUMAAligned")["reason"] == reason
    assert engines(world) == []
    assert world.pods("chat", "decode") == []


def test_when_a_driver_catches_up_the_pods_are_made(
    world: World, control_plane: ControlPlane
) -> None:
    world.apply("chat", on("silent", ONE_OF_EACH))
    world.until_condition("chat", "DecodeReady", "False", "NoNumaAttribute")
    (_, adapters, _) = resource_slices(Machine("silent", nics=[0, 1]))
    control_plane.kubectl("apply", "-f", "-", manifest=adapters)
    world.until_ready("chat")


def test_preferred_takes_what_there_is_and_says_so(world: World) -> None:
    world.apply("chat", on("crossed", ONE_OF_EACH, policy="preferred"))
    world.until_ready("chat")
    (claim,) = allocated(world)
    assert set(claim) == {"gpu", "nic/any", "cpu/near"}
    found = world.condition("chat", "NUMAAligned")
    assert (found["status"], found["reason"]) == ("False", "DevicesCrossNuma")


def test_preferred_is_aligned_where_it_can_be(world: World) -> None:
    world.apply("chat", on("numa-4", ONE_OF_EACH, {"replicas": 4}, policy="preferred"))
    world.until_ready("chat")
    claims = allocated(world)
    assert {name for claim in claims for name in claim} == {"gpu", "nic/near", "cpu/near"}
    assert all(len({v for values in c.values() for v in values}) == 1 for c in claims)


def test_pods_that_wait_for_devices_in_use_are_told_apart(world: World) -> None:
    world.apply("chat", on("numa-2", ONE_OF_EACH, {"replicas": 3}))
    found = world.until_condition("chat", "DecodeReady", "False", "DevicesInUse")
    assert "2 of 3 decode pods are ready" in found["message"]
    assert "cannot allocate all claims" in found["message"]


def test_a_large_claim_waits_outside_the_scheduler_until_its_devices_are_free(
    world: World, operator: OperatorProcess
) -> None:
    world.apply("small", on("big", {"gpu": {}, "nic": {}}))
    world.until_ready("small")
    # What the operator knows of claims may be two seconds old.
    operator.until_resynced(4)
    world.apply("chat", on("big", {"gpu": {"count": 8}, "nic": {"count": 8}}))
    world.until_condition("chat", "DecodeReady", "False", "DevicesInUse")
    assert world.owned("pods", "chat") == []
    world.kubectl("delete", "odep", "small")
    world.until_ready("chat")


def test_another_claim_is_another_template_and_the_old_one_goes(world: World) -> None:
    world.apply("chat", on("numa-8", {"gpu": {}, "nic": {}}))
    world.until_ready("chat")
    (old,) = world.owned("resourceclaimtemplates")
    world.apply("chat", on("numa-8", ONE_OF_EACH))
    world.until_ready("chat")
    wait.until(
        lambda: old not in world.owned("resourceclaimtemplates"), "the old template to go", SECONDS
    )
    assert len(world.owned("resourceclaimtemplates")) == 1


def rests(world: World) -> bool:
    """Whether the decode Deployment is to have no pods and the cluster has taken note of it."""
    (body,) = (
        item
        for item in world.owned("deployments", "chat")
        if item["metadata"]["labels"][COMPONENT_LABEL] == "decode"
    )
    status = body.get("status", {})
    return bool(
        body["spec"]["replicas"] == status.get("replicas", 0) == 0
        and status.get("observedGeneration") == body["metadata"]["generation"]
    )


def test_pods_that_a_kubelet_refuses_for_their_topology_make_no_storm(
    world: World, operator: OperatorProcess
) -> None:
    refused = fake("fail", "TopologyAffinityError")
    world.apply("chat", spec(prefill=None, decode={"replicas": 2, **refused}))
    found = world.until_condition("chat", "DecodeReady", "False", "TopologyAffinityError")
    wait.until(
        lambda: "no new pods before" in world.condition("chat", "DecodeReady")["message"],
        f"the pause (after {found['message']})",
        SECONDS,
    )
    # What the cluster had begun before it saw the pause is not counted.
    wait.until(lambda: rests(world), "a Deployment that makes no pods", SECONDS)
    operator.until_resynced(1)
    count = len(world.owned("pods", "chat"))
    operator.until_resynced(2)
    assert len(world.owned("pods", "chat")) == count
    assert world.status("chat")["servingRevision"]
    world.apply("chat", spec(prefill=None, decode={"replicas": 2}))
    world.until_ready("chat")


def test_a_pod_that_the_kubelet_would_not_pin_is_not_made(world: World) -> None:
    # The schema looks at the engine; what the override adds only shows in the whole pod.
    resources = {"limits": {"cpu": 2, "memory": "8Gi"}}
    proxy = {"spec": {"containers": [{"name": "proxy", "image": "proxy"}]}}
    numa = {"numa": {"mode": "kubelet", "policy": "required"}}
    decode = {"resources": resources, "podTemplate": proxy}
    world.apply("chat", spec(prefill=None, decode=decode, topology=numa))
    found = world.until_condition("chat", "DecodeReady", "False", "NotPinnable")
    assert "container proxy has no cpu limit" in found["message"]
    assert engines(world) == []
