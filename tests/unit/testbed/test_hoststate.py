"""What namespaces do not contain is put back."""

from __future__ import annotations

from pathlib import Path

from testbed.node import hoststate


def test_sysctls_that_changed_are_written_back(tmp_path: Path) -> None:
    for name in hoststate.KUBELET_SYSCTLS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("0\n")
    before = hoststate.read_sysctls(tmp_path)
    (tmp_path / "vm/overcommit_memory").write_text("1\n")
    hoststate.restore_sysctls(before, tmp_path)
    assert hoststate.read_sysctls(tmp_path) == before


def test_a_sysctl_that_this_kernel_lacks_is_left_out(tmp_path: Path) -> None:
    assert hoststate.read_sysctls(tmp_path) == {}


def test_only_mount_points_that_were_made_are_removed_and_only_when_empty(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    folders = [str(tmp_path / name) for name in ("there", "new", "used")]
    made = hoststate.make_folders(folders)
    (tmp_path / "used" / "file").touch()
    hoststate.remove_folders(made)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there", "used"]


def test_control_groups_of_the_bed_go_in_every_hierarchy_and_others_stay(tmp_path: Path) -> None:
    for group in ("cpu/kubepods/burstable/pod1", "memory/k8s.io/x", "cpu/system.slice", "kubepods"):
        (tmp_path / group).mkdir(parents=True)
    assert hoststate.remove_cgroups(tmp_path) == []
    assert hoststate.bed_cgroups(tmp_path) == []
    assert (tmp_path / "cpu/system.slice").is_dir()


def test_a_control_group_that_stays_busy_is_reported(tmp_path: Path) -> None:
    (tmp_path / "cpu/kubepods").mkdir(parents=True)
    (tmp_path / "cpu/kubepods/tasks").touch()
    left = hoststate.remove_cgroups(tmp_path, timeout=0.1)
    assert left == [tmp_path / "cpu/kubepods"]
