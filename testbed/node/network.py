"""Mounts and addresses inside the namespaces, as commands in the order in which they run."""

from __future__ import annotations

from pathlib import Path

from testbed.controlplane.commands import SERVICE_CIDR
from testbed.node import layout
from testbed.node.layout import Layout

MODELS_FOLDER = "/var/lib/oasiskv"
"""Where the examples expect models on a node."""

PRIVATE_FOLDERS = ("/var/log", "/var/lib/cni", "/var/lib/kubelet", MODELS_FOLDER)
"""Folders that the node writes to or serves from; inside they are folders of the bed."""


def private_copy(files: Layout, folder: str) -> Path:
    """What is mounted over ``folder``."""
    return files.state / "private" / folder.strip("/").replace("/", "-")


def mounts(files: Layout) -> list[list[str]]:
    """Private copies of everything that the runtime would otherwise leave on the host."""
    commands = [
        ["mount", "--make-rprivate", "/"],
        ["mount", "-t", "tmpfs", "tmpfs", "/run"],
    ]
    commands += [
        ["mount", "--bind", str(private_copy(files, folder)), folder] for folder in PRIVATE_FOLDERS
    ]
    commands.append(["mount", "--bind", f"{files.etc}/resolv.conf", "/etc/resolv.conf"])
    # Pods' volumes are mounted by the kubelet and must be seen by containerd's namespaces.
    commands.append(["mount", "--make-rshared", "/"])
    return commands


def addresses() -> list[list[str]]:
    """Loopback and a node address, and no default route.

    The address sits on a veth pair, as not every kernel has the dummy driver. Services need a
    route of their own, or a connection from inside to one fails before it is translated.
    """
    return [
        ["ip", "link", "set", "lo", "up"],
        ["ip", "link", "add", "node0", "type", "veth", "peer", "name", "node1"],
        ["ip", "addr", "add", f"{layout.ADDRESS}/32", "dev", "node0"],
        ["ip", "link", "set", "node0", "up"],
        ["ip", "link", "set", "node1", "up"],
        ["ip", "route", "add", SERVICE_CIDR, "dev", "node0"],
        ["sysctl", "-qw", "net.ipv4.ip_forward=1"],
    ]
