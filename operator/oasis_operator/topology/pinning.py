"""What keeps the kubelet from pinning a pod, read off its template.

The static CPU manager and the memory manager act on Guaranteed pods only, CPUs are exclusive only
as whole numbers, and with one container that has neither the pod is in the shared pool without a
word. Sources: Kubernetes docs, "Control CPU Management Policies on the Node", "Pod Quality of
Service Classes"; KEP-693 (topology manager).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from oasis_operator.api.quantity import parse_quantity, same_quantity

_PINNED = ("cpu", "memory")


def pinning_problems(template: Mapping[str, Any]) -> tuple[str, ...]:
    """One sentence for each thing in the pod that loses alignment; empty where nothing does."""
    return tuple(
        problem
        for container in _containers(template["spec"])
        for problem in _problems_of(container)
    )


def _containers(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from spec.get("initContainers") or ()
    yield from spec["containers"]


def _problems_of(container: Mapping[str, Any]) -> Iterator[str]:
    name = container["name"]
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for resource in _PINNED:
        limit = limits.get(resource)
        if limit is None:
            yield f"container {name} has no {resource} limit"
        elif resource in requests and not same_quantity(requests[resource], limit):
            yield f"container {name} requests {requests[resource]} {resource} of a limit of {limit}"
    if "cpu" in limits and not _whole(limits["cpu"]):
        yield f"container {name} has {limits['cpu']} CPUs, which is no whole number"


def _whole(cpus: Any) -> bool:
    try:
        amount = parse_quantity(cpus)
    except ValueError:
        return False
    return amount > 0 and amount == amount.to_integral_value()
