"""Node objects that KWOK brings to life."""

from __future__ import annotations

from typing import Any

from testbed.controlplane.commands import FAKE_NODE_ANNOTATION

Manifest = dict[str, Any]


def fake_node(name: str, *, cpu: str = "64", memory: str = "512Gi", pods: str = "110") -> Manifest:
    """A node with the given capacity, schedulable by any pod."""
    key, _, value = FAKE_NODE_ANNOTATION.partition("=")
    capacity = {"cpu": cpu, "memory": memory, "pods": pods}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {key: value},
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
        },
        "status": {"capacity": capacity, "allocatable": capacity},
    }


def fake_nodes(count: int) -> Manifest:
    """A List of ``count`` nodes ``fake-0``, ``fake-1``, ..."""
    items = [fake_node(f"fake-{number}") for number in range(count)]
    return {"apiVersion": "v1", "kind": "List", "items": items}
