from __future__ import annotations

from typing import Any

from oasis_operator.desired.claim_template import claim_template
from oasis_operator.desired.metadata import Manifest
from oasis_operator.desired.numa import numa_settings
from oasis_operator.desired.roles import role_plans
from oasis_operator.topology.request import PCIE_ROOT
from testbed.controlplane.fakedevices import NUMA_NODE
from tests.unit.operator.make import deployment

BOTH: dict[str, Any] = {"gpu": {}, "nic": {}}
ALL: dict[str, Any] = {**BOTH, "cpu": {"count": 8}}


def template(devices: dict[str, Any] = ALL, role: dict[str, Any] | None = None, **numa: Any) -> Any:
    od = deployment(
        prefill={"devices": devices, **(role or {})},
        topology={"numa": {"policy": "required", **numa}},
    )
    return claim_template(od, role_plans(od)[0])


def claim(devices: dict[str, Any] = ALL, **numa: Any) -> Manifest:
    found: Manifest = template(devices, **numa)["spec"]["spec"]["devices"]
    return found


def constraints(found: Manifest) -> dict[str, list[str]]:
    return {item["matchAttribute"]: item["requests"] for item in found.get("constraints", [])}


def test_it_asks_for_every_device_from_its_class() -> None:
    asked = {item["name"]: item["exactly"] for item in claim()["requests"]}
    assert {name: (item["deviceClassName"], item["count"]) for name, item in asked.items()} == {
        "gpu": ("gpu.nvidia.com", 1),
        "nic": ("rdma", 1),
        "cpu": ("dra.cpu", 8),
    }


def test_a_selector_is_asked_for() -> None:
    found = claim({"gpu": {"selector": "device.driver == 'x'"}})
    selectors = found["requests"][0]["exactly"]["selectors"]
    assert selectors == [{"cel": {"expression": "device.driver == 'x'"}}]


def test_the_numa_node_ties_all_of_them() -> None:
    assert constraints(claim()) == {NUMA_NODE: ["gpu", "nic", "cpu"]}


def test_a_pcie_root_ties_what_is_on_a_bus_and_the_numa_node_the_cpus() -> None:
    assert constraints(claim(align="pcieRoot")) == {
        PCIE_ROOT: ["gpu", "nic"],
        NUMA_NODE: ["gpu", "nic", "cpu"],
    }
    assert constraints(claim(BOTH, align="pcieRoot")) == {PCIE_ROOT: ["gpu", "nic"]}


def test_another_drivers_attribute_can_be_named() -> None:
    assert list(constraints(claim(attribute="dra.net/numaNode"))) == ["dra.net/numaNode"]


def test_a_single_device_needs_no_attribute() -> None:
    assert constraints(claim({"gpu": {}})) == {}
    assert constraints(claim({"gpu": {"count": 2}})) == {NUMA_NODE: ["gpu"]}


def test_preferred_has_an_alternative_for_all_but_a_single_gpu() -> None:
    found = claim(policy="preferred")
    gpu, nic, _ = found["requests"]
    assert "exactly" in gpu
    assert [item["name"] for item in nic["firstAvailable"]] == ["near", "any"]
    assert constraints(found) == {NUMA_NODE: ["gpu", "nic/near", "cpu/near"]}


def test_preferred_has_an_alternative_for_several_gpus_too() -> None:
    found = claim({"gpu": {"count": 4}, "nic": {}}, policy="preferred")
    assert constraints(found) == {NUMA_NODE: ["gpu/near", "nic/near"]}


def test_none_ties_nothing() -> None:
    found = claim(policy="none")
    assert constraints(found) == {}
    assert all("exactly" in item for item in found["requests"])


def test_a_role_may_differ() -> None:
    found = template(role={"numa": {"policy": "none"}})
    assert constraints(found["spec"]["spec"]["devices"]) == {}
    od = deployment(decode={"numa": {"mode": "dra"}}, topology={"numa": {"align": "pcieRoot"}})
    prefill, decode = (numa_settings(od, role) for role in role_plans(od))
    assert (prefill.mode, decode.mode) == ("auto", "dra")
    assert (prefill.align, decode.align) == ("pcieRoot", "pcieRoot")


def test_the_name_follows_from_the_content_alone() -> None:
    assert template()["metadata"]["name"].startswith("chat-prefill-")
    assert template() == template()
    assert template()["metadata"]["name"] != template(BOTH)["metadata"]["name"]
    assert template()["metadata"]["name"] != template(policy="preferred")["metadata"]["name"]


def test_a_role_without_devices_claims_nothing() -> None:
    od = deployment()
    assert claim_template(od, role_plans(od)[0]) is None
