"""The little that namespaces do not contain: noted before the start, put back at the end."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

KUBELET_SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
"""The kubelet sets these for the whole host."""
CGROUPS = ("kubepods", "k8s.io")
"""Control groups that the kubelet and containerd make; they have no namespace here."""


def read_sysctls(root: Path = Path("/proc/sys")) -> dict[str, str]:
    """Present values of what the kubelet will change."""
    present = (name for name in KUBELET_SYSCTLS if (root / name).exists())
    return {name: (root / name).read_text().strip() for name in present}


def restore_sysctls(values: dict[str, str], root: Path = Path("/proc/sys")) -> None:
    """Write back what differs."""
    for name, value in values.items():
        path = root / name
        if path.read_text().strip() != value:
            path.write_text(value)


def make_folders(folders: Iterable[str]) -> list[str]:
    """Make mount points that the host lacks; returns those made, the deepest last."""
    made: list[str] = []
    for folder in folders:
        path = Path(folder)
        if not path.exists():
            path.mkdir(parents=True)
            made.append(folder)
    return made


def remove_folders(folders: Iterable[str]) -> None:
    """Remove the mount points again, if nobody has put anything there since."""
    for folder in folders:
        try:
            Path(folder).rmdir()
        except OSError:
            continue


def bed_cgroups(root: Path = Path("/sys/fs/cgroup")) -> list[Path]:
    """Top control groups of the bed, in every hierarchy (version 1) or the only one (version 2)."""
    places = [root, *(child for child in root.iterdir() if child.is_dir())]
    return [place / name for place in places for name in CGROUPS if (place / name).is_dir()]


def remove_cgroups(root: Path = Path("/sys/fs/cgroup"), timeout: float = 10.0) -> list[Path]:
    """Remove the bed's control groups, leaves first; returns those that would not go.

    A group stays busy for a moment after its last process was killed.
    """
    deadline = time.monotonic() + timeout
    while (left := bed_cgroups(root)) and time.monotonic() < deadline:
        for group in left:
            _remove_tree(group)
        time.sleep(0.05)
    return left


def _remove_tree(group: Path) -> None:
    for child in group.iterdir():
        if child.is_dir():
            _remove_tree(child)
    try:
        group.rmdir()
    except OSError:
        return
