"""Is the process where its devices are? Reads sysfs, judges, and binds memory.

A device is *near* when it hangs off the NUMA node whose CPUs and memory the process may use;
a page that crosses sockets costs about half of the link. All paths come from a
:class:`HostView`, so that a test can give any machine.

Sources: Documentation/ABI/stable/sysfs-devices-node, sysfs-bus-pci (``numa_node``, ``class``),
proc_pid_status(5), set_mempolicy(2).
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

_GPU_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
"""PCI class and subclass: VGA, 3D controller, other display, processing accelerator."""
_GPU_VENDORS = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}
"""The display chips of management controllers have the same classes but other vendors."""

_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
_MPOL_PREFERRED = 1
_MASK_BITS = 1024


class Verdict(StrEnum):
    ALIGNED = "aligned"
    MISALIGNED = "misaligned"
    UNKNOWN = "unknown"


_METRIC_VALUES = {Verdict.ALIGNED: 1, Verdict.MISALIGNED: 0, Verdict.UNKNOWN: -1}


@dataclass(frozen=True)
class HostView:
    """Where the kernel's file systems are mounted."""

    sys: Path = Path("/sys")
    proc: Path = Path("/proc")
    dev: Path = Path("/dev")


@dataclass(frozen=True)
class Device:
    """A GPU or RDMA adapter that this container was given."""

    name: str
    node: int | None
    """None where the firmware does not say (``numa_node`` is -1)."""


@dataclass(frozen=True)
class Topology:
    """NUMA nodes of the machine, and the devices that the process can open."""

    cpus_of_node: Mapping[int, frozenset[int]]
    devices: tuple[Device, ...]


@dataclass(frozen=True)
class Placement:
    """What the kernel lets the process use (cpuset of the container)."""

    cpus: frozenset[int]
    memory_nodes: frozenset[int]


@dataclass(frozen=True)
class NumaReport:
    verdict: Verdict
    reason: str
    """One sentence for a person."""
    node: int | None = None
    """The node that memory should come from, where there is one answer."""
    bound: bool = field(default=False, kw_only=True)
    """Whether the memory policy of the process was set to ``node``."""

    @property
    def metric(self) -> int:
        """Value of the gauge ``oasis_numa_aligned``."""
        return _METRIC_VALUES[self.verdict]


def parse_id_list(text: str) -> frozenset[int]:
    """``0-3,8`` as {0, 1, 2, 3, 8}; the kernel writes an empty set as an empty line.

    Raises:
        ValueError: the text is not such a list.
    """
    ids: set[int] = set()
    for part in text.strip().split(","):
        if not part:
            continue
        first, dash, last = part.partition("-")
        start, end = int(first), int(last if dash else first)
        if end < start:
            raise ValueError(f"range {part} runs backwards")
        ids.update(range(start, end + 1))
    return frozenset(ids)


def format_id_list(ids: Iterable[int]) -> str:
    """The shortest list that :func:`parse_id_list` reads back."""
    runs: list[list[int]] = []
    for number in sorted(set(ids)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def read_placement(status: str) -> Placement:
    """From the text of ``/proc/self/status``.

    Raises:
        ValueError: the two ``*_allowed_list`` lines are not there.
    """
    values = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    try:
        cpus, nodes = values["Cpus_allowed_list"], values["Mems_allowed_list"]
    except KeyError as missing:
        raise ValueError(f"no line {missing} in the process status") from None
    return Placement(parse_id_list(cpus), parse_id_list(nodes))


def read_topology(host: HostView) -> Topology:
    """NUMA nodes from ``/sys/devices/system/node``, devices from the PCI and RDMA classes.

    sysfs shows every device of the machine to every container; only those whose device file is
    in ``/dev`` are this container's own.
    """
    cpus_of_node = {
        int(folder.name.removeprefix("node")): parse_id_list(_read(folder / "cpulist") or "")
        for folder in sorted((host.sys / "devices/system/node").glob("node[0-9]*"))
    }
    return Topology(cpus_of_node, (*_gpus(host), *_rdma_adapters(host)))


def judge(topology: Topology, placement: Placement) -> NumaReport:
    """Compare the devices' node with the CPUs and memory that the process may use.

    Without devices the CPUs are the device: they compute, so they must all be on one node whose
    memory is allowed.
    """
    if not topology.cpus_of_node:
        return NumaReport(Verdict.UNKNOWN, "the kernel shows no NUMA nodes")
    cpu_nodes = {node for node, cpus in topology.cpus_of_node.items() if cpus & placement.cpus}
    device_nodes = {device.node for device in topology.devices if device.node is not None}
    if len(device_nodes) > 1:
        places = ", ".join(
            f"{device.name} on {_nodes([device.node])}"
            for device in topology.devices
            if device.node is not None
        )
        return NumaReport(Verdict.MISALIGNED, f"the devices are on different nodes: {places}")
    if device_nodes:
        return _judge_against_device(topology, placement, cpu_nodes, device_nodes.pop())
    return _judge_without_device(topology, placement, cpu_nodes)


def _judge_against_device(
    topology: Topology, placement: Placement, cpu_nodes: set[int], node: int
) -> NumaReport:
    name = next(device.name for device in topology.devices if device.node == node)
    if node not in placement.memory_nodes:
        return NumaReport(
            Verdict.MISALIGNED,
            f"{name} is on NUMA node {node} and the process may only use the memory of "
            f"{_nodes(placement.memory_nodes)}",
        )
    if cpu_nodes != {node}:
        return NumaReport(
            Verdict.MISALIGNED,
            f"{name} is on NUMA node {node} and the process may run on CPUs "
            f"{format_id_list(placement.cpus)} of {_nodes(cpu_nodes)}",
            node,
        )
    return NumaReport(Verdict.ALIGNED, f"CPUs, memory and {name} are on NUMA node {node}", node)


def _judge_without_device(
    topology: Topology, placement: Placement, cpu_nodes: set[int]
) -> NumaReport:
    cpus = format_id_list(placement.cpus)
    if len(cpu_nodes) != 1:
        reason = f"the process may run on CPUs {cpus} of {_nodes(cpu_nodes)}"
        if topology.devices or not cpu_nodes:
            return NumaReport(
                Verdict.UNKNOWN, f"{reason} and no device says which NUMA node it is on"
            )
        return NumaReport(
            Verdict.MISALIGNED, f"{reason}; give an engine without a GPU the CPUs of one node"
        )
    node = next(iter(cpu_nodes))
    if node not in placement.memory_nodes:
        return NumaReport(
            Verdict.MISALIGNED,
            f"CPUs {cpus} are on NUMA node {node} and the process may only use the memory of "
            f"{_nodes(placement.memory_nodes)}",
        )
    return NumaReport(Verdict.ALIGNED, f"CPUs {cpus} and memory are on NUMA node {node}", node)


def prefer_memory_of(node: int) -> None:
    """Take new pages from ``node`` while it has any; children and ``exec`` keep the policy.

    Raises:
        OSError: the kernel or the container's seccomp profile forbids it, or the machine is of
            an architecture whose system call number is not known here.
    """
    number = _SET_MEMPOLICY.get(platform.machine())
    if number is None:
        raise OSError(0, f"set_mempolicy is not known on {platform.machine()}")
    bits = 8 * ctypes.sizeof(ctypes.c_ulong)
    mask = (ctypes.c_ulong * (_MASK_BITS // bits))()
    mask[node // bits] = 1 << (node % bits)
    libc = ctypes.CDLL(None, use_errno=True)
    # The kernel reads one bit less than maxnode.
    result = libc.syscall(
        ctypes.c_long(number),
        ctypes.c_long(_MPOL_PREFERRED),
        ctypes.byref(mask),
        ctypes.c_ulong(_MASK_BITS + 1),
    )
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _gpus(host: HostView) -> list[Device]:
    gpus = []
    for folder in sorted((host.sys / "bus/pci/devices").glob("*")):
        vendor = _GPU_VENDORS.get(_read(folder / "vendor") or "")
        if vendor is None or not (_read(folder / "class") or "").startswith(_GPU_CLASSES):
            continue
        if _gpu_is_ours(host, folder):
            gpus.append(Device(f"{vendor} GPU {folder.name}", _node_of(folder)))
    return gpus


def _gpu_is_ours(host: HostView, folder: Path) -> bool:
    """NVIDIA's driver names the device file by its own minor number, the others by DRM's."""
    information = _read(host.proc / "driver/nvidia/gpus" / folder.name / "information") or ""
    for line in information.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "Device Minor" and (host.dev / f"nvidia{value.strip()}").exists():
            return True
    render_nodes = (folder / "drm").glob("renderD*")
    return any((host.dev / "dri" / node.name).exists() for node in render_nodes)


def _rdma_adapters(host: HostView) -> list[Device]:
    adapters = []
    for verbs in sorted((host.sys / "class/infiniband_verbs").glob("uverbs*")):
        name = _read(verbs / "ibdev")
        if name and (host.dev / "infiniband" / verbs.name).exists():
            folder = host.sys / "class/infiniband" / name / "device"
            adapters.append(Device(f"RDMA adapter {name}", _node_of(folder)))
    return adapters


def _node_of(folder: Path) -> int | None:
    node = int(_read(folder / "numa_node") or -1)
    return node if node >= 0 else None


def _nodes(nodes: Iterable[int | None]) -> str:
    known = sorted({node for node in nodes if node is not None})
    if not known:
        return "no NUMA node"
    return f"NUMA node{'s' if len(known) > 1 else ''} {format_id_list(known)}"


def _read(file: Path) -> str | None:
    try:
        return file.read_text().strip()
    except OSError:
        return None
