"""Devices of fake nodes, as DRA drivers publish them: GPUs, RDMA adapters and CPUs by NUMA node.

Attribute names: KEP-4381 (``pcieRoot``) and KEP-6072 (``numaNode``) under resource.kubernetes.io.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Manifest = dict[str, Any]

NUMA_NODE = "resource.kubernetes.io/numaNode"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
GPU_DRIVER, NIC_DRIVER, CPU_DRIVER = "gpu.nvidia.com", "dra.net", "dra.cpu"


@dataclass(frozen=True)
class Machine:
    """The NUMA node of every device of one node; -1 for a device that publishes none."""

    name: str
    gpus: Sequence[int] = ()
    nics: Sequence[int] = ()
    cpus: Sequence[int] = ()


def regular(name: str, *, numa_nodes: int, each: int = 1, cpus: int = 4) -> Machine:
    """A machine with ``each`` GPUs and adapters and ``cpus`` CPUs on every NUMA node."""
    devices = [node for node in range(numa_nodes) for _ in range(each)]
    return Machine(name, devices, devices, [n for n in range(numa_nodes) for _ in range(cpus)])


def device_classes() -> list[Manifest]:
    """The classes that the drivers' installations make; ``rdma`` is one of the administrator's."""
    return [
        _class("gpu.nvidia.com", f'device.driver == "{GPU_DRIVER}"'),
        _class(
            "rdma",
            f'device.driver == "{NIC_DRIVER}"',
            f'device.attributes["{NIC_DRIVER}"].rdma == true',
        ),
        _class("dra.cpu", f'device.driver == "{CPU_DRIVER}"'),
    ]


def resource_slices(machine: Machine) -> list[Manifest]:
    """One slice a driver; a GPU and the adapter of the same number share a PCIe root."""
    return [
        _slice(machine, GPU_DRIVER, "gpu", machine.gpus, {}),
        _slice(machine, NIC_DRIVER, "nic", machine.nics, {"rdma": {"bool": True}}),
        _slice(machine, CPU_DRIVER, "cpu", machine.cpus, {}),
    ]


def _class(name: str, *expressions: str) -> Manifest:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": text}} for text in expressions]},
    }


def _slice(
    machine: Machine, driver: str, kind: str, nodes: Sequence[int], more: Manifest
) -> Manifest:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{machine.name}-{driver}"},
        "spec": {
            "driver": driver,
            "nodeName": machine.name,
            "pool": {"name": machine.name, "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {"name": f"{kind}-{number}", "attributes": _attributes(kind, number, node) | more}
                for number, node in enumerate(nodes)
            ],
        },
    }


def _attributes(kind: str, number: int, node: int) -> Manifest:
    numa: Manifest = {} if node < 0 else {NUMA_NODE: {"int": node}}
    if kind == "cpu":
        return numa
    return numa | {PCIE_ROOT: {"string": f"pci{max(node, 0):04x}:{number:02x}"}}
