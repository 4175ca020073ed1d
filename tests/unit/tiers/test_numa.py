"""NUMA check: which devices count, and what the verdict is on any machine."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasis_runtime.tiers import numa
from oasis_runtime.tiers.numa import Verdict


@dataclass
class Machine:
    """Writes the files that Linux would show of a machine."""

    root: Path

    def __post_init__(self) -> None:
        for name in ("sys", "proc", "dev"):
            (self.root / name).mkdir()

    @property
    def view(self) -> numa.HostView:
        return numa.HostView(self.root / "sys", self.root / "proc", self.root / "dev")

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    def nodes(self, *cpulists: str) -> None:
        for node, cpus in enumerate(cpulists):
            self.write(f"sys/devices/system/node/node{node}/cpulist", cpus)

    def pci(self, address: str, *, vendor: str, kind: str, node: int) -> None:
        folder = f"sys/bus/pci/devices/{address}"
        self.write(f"{folder}/vendor", vendor)
        self.write(f"{folder}/class", kind)
        self.write(f"{folder}/numa_node", str(node))

    def nvidia_gpu(self, address: str, *, node: int, minor: int, given: bool = True) -> None:
        self.pci(address, vendor="0x10de", kind="0x030200", node=node)
        self.write(
            f"proc/driver/nvidia/gpus/{address}/information",
            f"Model: \t\t NVIDIA H100\nDevice Minor: \t {minor}",
        )
        if given:
            self.write(f"dev/nvidia{minor}", "")

    def rdma(self, name: str, *, node: int, verbs: int, given: bool = True) -> None:
        self.write(f"sys/class/infiniband/{name}/device/numa_node", str(node))
        self.write(f"sys/class/infiniband_verbs/uverbs{verbs}/ibdev", name)
        if given:
            self.write(f"dev/infiniband/uverbs{verbs}", "")

    def judge(self, cpus: str, memory: str) -> numa.NumaReport:
        status = f"Name:\tpython\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t{memory}\n"
        return numa.judge(numa.read_topology(self.view), numa.read_placement(status))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def two_sockets(machine: Machine) -> Machine:
    machine.nodes("0-31,64-95", "32-63,96-127")
    return machine


@pytest.fixture
def eight_nodes(machine: Machine) -> Machine:
    machine.nodes(*(f"{16 * node}-{16 * node + 15}" for node in range(8)))
    return machine


@settings(deadline=None)
@given(st.frozensets(st.integers(0, 4095), max_size=200))
def test_a_formatted_id_list_reads_back_as_itself(ids: frozenset[int]) -> None:
    assert numa.parse_id_list(numa.format_id_list(ids)) == ids


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 40)), max_size=20))
def test_ranges_in_any_order_and_overlapping_are_the_union(spans: list[tuple[int, int]]) -> None:
    text = ",".join(f"{start}-{start + length}" for start, length in spans)
    expected = {n for start, length in spans for n in range(start, start + length + 1)}
    assert numa.parse_id_list(text) == expected


@settings(deadline=None)
@given(st.frozensets(st.integers(0, 200), min_size=1))
def test_the_formatted_list_has_one_part_for_every_run(ids: frozenset[int]) -> None:
    runs = sum(1 for number in ids if number - 1 not in ids)
    assert len(numa.format_id_list(ids).split(",")) == runs


@pytest.mark.parametrize("text", ["3-1", "a", "1-", "1--2", "0-3 8"])
def test_what_is_not_an_id_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        numa.parse_id_list(text)


def test_a_status_without_the_allowed_lists_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="Mems_allowed_list"):
        numa.read_placement("Cpus_allowed_list:\t0-3\n")


def test_one_node_is_aligned_with_itself(machine: Machine) -> None:
    machine.nodes("0-7")
    report = machine.judge("0-7", "0")
    assert (report.verdict, report.node) == (Verdict.ALIGNED, 0)


def test_without_numa_in_sysfs_the_answer_is_unknown(machine: Machine) -> None:
    report = machine.judge("0-7", "0")
    assert (report.verdict, report.node) == (Verdict.UNKNOWN, None)


def test_a_cpu_engine_pinned_to_a_socket_is_aligned_on_it(two_sockets: Machine) -> None:
    report = two_sockets.judge("40-47,104-111", "0-1")
    assert (report.verdict, report.node) == (Verdict.ALIGNED, 1)


def test_a_cpu_engine_over_two_sockets_is_misaligned_and_told_so(two_sockets: Machine) -> None:
    report = two_sockets.judge("0-127", "0-1")
    assert (report.verdict, report.node) == (Verdict.MISALIGNED, None)
    assert "CPUs 0-127 of NUMA nodes 0-1" in report.reason


def test_cpus_of_one_node_with_memory_of_another_are_misaligned(two_sockets: Machine) -> None:
    report = two_sockets.judge("0-31", "1")
    assert (report.verdict, report.node) == (Verdict.MISALIGNED, None)


@pytest.mark.parametrize("node", range(8))
def test_a_gpu_with_cpus_and_memory_of_its_node_is_aligned(eight_nodes: Machine, node: int) -> None:
    eight_nodes.nvidia_gpu("0000:17:00.0", node=node, minor=0)
    report = eight_nodes.judge(f"{16 * node}-{16 * node + 7}", "0-7")
    assert (report.verdict, report.node) == (Verdict.ALIGNED, node)


def test_cpus_beyond_the_gpus_node_are_misaligned_but_memory_has_an_answer(
    two_sockets: Machine,
) -> None:
    two_sockets.nvidia_gpu("0000:17:00.0", node=1, minor=0)
    report = two_sockets.judge("0-127", "0-1")
    assert (report.verdict, report.node) == (Verdict.MISALIGNED, 1)
    assert "NVIDIA GPU 0000:17:00.0 is on NUMA node 1" in report.reason


def test_a_gpu_whose_nodes_memory_is_not_allowed_is_misaligned(two_sockets: Machine) -> None:
    two_sockets.nvidia_gpu("0000:17:00.0", node=1, minor=0)
    report = two_sockets.judge("32-63", "0")
    assert (report.verdict, report.node) == (Verdict.MISALIGNED, None)


def test_gpu_and_nic_on_different_nodes_are_misaligned_and_both_named(two_sockets: Machine) -> None:
    two_sockets.nvidia_gpu("0000:17:00.0", node=0, minor=0)
    two_sockets.rdma("mlx5_3", node=1, verbs=3)
    report = two_sockets.judge("0-31", "0-1")
    assert report.verdict is Verdict.MISALIGNED
    assert "0000:17:00.0 on NUMA node 0, RDMA adapter mlx5_3 on NUMA node 1" in report.reason


def test_gpu_and_nic_on_the_node_of_the_cpus_are_aligned(two_sockets: Machine) -> None:
    two_sockets.nvidia_gpu("0000:17:00.0", node=0, minor=0)
    two_sockets.rdma("mlx5_0", node=0, verbs=0)
    assert two_sockets.judge("0-31", "0-1").verdict is Verdict.ALIGNED


def test_devices_of_other_containers_do_not_count(two_sockets: Machine) -> None:
    two_sockets.nvidia_gpu("0000:17:00.0", node=0, minor=0, given=False)
    two_sockets.rdma("mlx5_0", node=0, verbs=0, given=False)
    report = two_sockets.judge("32-63", "0-1")
    assert (report.verdict, report.node) == (Verdict.ALIGNED, 1)


def test_the_display_chip_of_a_management_controller_is_no_gpu(two_sockets: Machine) -> None:
    two_sockets.pci("0000:03:00.0", vendor="0x1a03", kind="0x030000", node=0)
    (two_sockets.root / "sys/bus/pci/devices/0000:03:00.0/drm/renderD128").mkdir(parents=True)
    two_sockets.write("dev/dri/renderD128", "")
    assert numa.read_topology(two_sockets.view).devices == ()


@pytest.mark.parametrize("kind", ["0x030000", "0x030200", "0x038000", "0x120000"])
def test_a_gpu_of_another_vendor_is_found_by_its_render_node(machine: Machine, kind: str) -> None:
    machine.pci("0000:c1:00.0", vendor="0x1002", kind=kind, node=3)
    (machine.root / "sys/bus/pci/devices/0000:c1:00.0/drm/renderD129").mkdir(parents=True)
    machine.write("dev/dri/renderD129", "")
    assert numa.read_topology(machine.view).devices == (numa.Device("AMD GPU 0000:c1:00.0", 3),)


def test_a_device_that_does_not_say_its_node_leaves_two_sockets_unknown(
    two_sockets: Machine,
) -> None:
    two_sockets.nvidia_gpu("0000:17:00.0", node=-1, minor=0)
    assert two_sockets.judge("0-127", "0-1").verdict is Verdict.UNKNOWN


def test_a_device_that_does_not_say_its_node_is_near_where_there_is_one(machine: Machine) -> None:
    machine.nodes("0-7")
    machine.nvidia_gpu("0000:17:00.0", node=-1, minor=0)
    assert machine.judge("0-3", "0").verdict is Verdict.ALIGNED


def test_a_node_with_memory_only_does_not_disturb(machine: Machine) -> None:
    machine.nodes("0-7", "")
    report = machine.judge("0-7", "0-1")
    assert (report.verdict, report.node) == (Verdict.ALIGNED, 0)


@settings(deadline=None)
@given(
    node_count=st.integers(1, 8),
    cpus=st.frozensets(st.integers(0, 31), min_size=1),
    memory=st.frozensets(st.integers(0, 7), min_size=1),
    devices=st.lists(st.integers(0, 7), max_size=3),
)
def test_aligned_means_that_all_is_on_the_one_node_that_is_named(
    node_count: int, cpus: frozenset[int], memory: frozenset[int], devices: list[int]
) -> None:
    nodes = {
        n: frozenset(range(n * 32 // node_count, (n + 1) * 32 // node_count))
        for n in range(node_count)
    }
    found = tuple(numa.Device(f"gpu{i}", n % node_count) for i, n in enumerate(devices))
    report = numa.judge(numa.Topology(nodes, found), numa.Placement(cpus, memory))

    def all_on(node: int) -> bool:
        return cpus <= nodes[node] and node in memory and all(d.node == node for d in found)

    aligned_on = [node for node in nodes if all_on(node)]
    assert (report.verdict is Verdict.ALIGNED) == bool(aligned_on)
    if aligned_on:
        assert report.node == aligned_on[0]


@pytest.mark.parametrize(
    ("verdict", "value"), [(Verdict.ALIGNED, 1), (Verdict.MISALIGNED, 0), (Verdict.UNKNOWN, -1)]
)
def test_the_gauge_tells_the_three_verdicts_apart(verdict: Verdict, value: int) -> None:
    assert numa.NumaReport(verdict, "because").metric == value


def _memory_policy_after(node: int) -> tuple[int, int]:
    """Mode and node mask that the kernel reports in a process that preferred ``node``."""
    script = (
        "import ctypes, platform; from oasis_runtime.tiers import numa\n"
        f"numa.prefer_memory_of({node})\n"
        "number = {'x86_64': 239, 'aarch64': 236}[platform.machine()]\n"
        "mode, mask = ctypes.c_int(), (ctypes.c_ulong * 16)()\n"
        "libc = ctypes.CDLL(None)\n"
        "size = ctypes.c_ulong(1024)\n"
        "assert libc.syscall(number, ctypes.byref(mode), mask, size, None, 0) == 0\n"
        "print(mode.value, mask[0])\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
    )
    mode, mask = run.stdout.split()
    return int(mode), int(mask)


def _set_mempolicy_is_allowed() -> bool:
    number = {"x86_64": 238, "aarch64": 237}.get(platform.machine(), -1)
    return int(ctypes.CDLL(None).syscall(number, 0, None, 0)) == 0


@pytest.mark.skipif(
    not _set_mempolicy_is_allowed(), reason="the kernel or a seccomp profile forbids set_mempolicy"
)
def test_the_kernel_takes_the_memory_policy() -> None:
    mpol_preferred = 1
    assert _memory_policy_after(0) == (mpol_preferred, 1)


def test_a_node_that_does_not_exist_is_an_error_and_not_silence() -> None:
    with pytest.raises(OSError, match=r".+"):
        numa.prefer_memory_of(_absent(numa.read_topology(numa.HostView()).cpus_of_node))


def _absent(nodes: Iterable[int]) -> int:
    return max(nodes, default=0) + 1
