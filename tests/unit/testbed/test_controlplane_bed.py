"""The control-plane bed without starting it."""

from __future__ import annotations

from pathlib import Path

from testbed.controlplane import bed, commands, fakenodes
from testbed.controlplane.bed import ControlPlane
from testbed.controlplane.commands import Ports
from testbed.processes import Process

PORTS = Ports(1001, 1002, 1003, 1004, 1005, 1006)


def test_ports_are_all_different() -> None:
    ports = bed.free_ports(20)
    assert len(set(ports)) == 20


def test_a_bed_is_found_again_as_it_was_saved(tmp_path: Path) -> None:
    saved = ControlPlane(
        tmp_path, "https://x", Path("/kubectl"), (Process("etcd", 1, 2),), Process("pytest", 3, 4)
    )
    saved.save()
    assert bed.load(tmp_path) == saved


def test_a_folder_without_a_bed_has_none(tmp_path: Path) -> None:
    assert bed.load(tmp_path) is None


def test_everything_listens_on_loopback_only() -> None:
    flags = [
        *commands.etcd(Path("/data"), PORTS),
        *commands.apiserver(Path("/pki"), etcd_port=1001, port=1003, address="127.0.0.1"),
        *commands.controller_manager(Path("/pki"), Path("/kcm"), 1004),
        *commands.scheduler(Path("/scheduler"), 1005),
        *commands.kwok(Path("/kwok"), Path("/stages"), 1006),
    ]
    assert "--bind-address=127.0.0.1" in flags
    assert not [flag for flag in flags if "0.0.0.0" in flag]


def test_kwok_manages_only_nodes_that_ask_for_it() -> None:
    key, _, value = commands.FAKE_NODE_ANNOTATION.partition("=")
    assert fakenodes.fake_node("n")["metadata"]["annotations"] == {key: value}
    assert "--manage-all-nodes=false" in commands.kwok(Path("/k"), Path("/s"), 1)
