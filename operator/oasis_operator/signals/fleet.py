"""From the numbers of Prometheus and the pods of the cluster to what scaling decides from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oasis_operator.autoscaling.measured import Fleet, Latency, Link, Pod, Ratio, RoleSignals

ByPod = Mapping[str, float]
"""Pod name -> value; what is missing is missing."""


@dataclass(frozen=True)
class RoleNumbers:
    """The answers to :class:`RoleQueries`."""

    running: ByPod
    waiting: ByPod
    busy: ByPod
    tokens: ByPod
    links: Mapping[str, tuple[ByPod, ByPod]]
    """Link -> bytes a second that are used, and that there are."""
    queue: Latency
    latency: Latency


@dataclass(frozen=True)
class FleetNumbers:
    """The answers to :class:`FleetQueries`."""

    decode: RoleNumbers
    prefill: RoleNumbers
    hit: Ratio
    dense: Ratio
    recall: Ratio
    slots: Ratio
    exports: float | None
    export_seconds: float | None


@dataclass(frozen=True)
class RolePods:
    """Pods of one role as the cluster has them."""

    replicas: int
    """Pods that the Deployment asks for."""
    ready_seconds: Mapping[str, float]
    """Name of a ready pod -> how long it has been ready."""
    placed: int
    """Pods that found a node and run there, ready or not."""
    pending_seconds: float
    """How long the oldest of the others has waited; 0 without one."""


def fleet_of(numbers: FleetNumbers, decode: RolePods, prefill: RolePods | None) -> Fleet:
    """Joins them. A ready pod without numbers stays in, so that the decision sees the gap."""
    return Fleet(
        decode=_role(numbers.decode, decode),
        prefill=_role(numbers.prefill, prefill) if prefill else None,
        hit=numbers.hit,
        dense=numbers.dense,
        recall=numbers.recall,
        slots=numbers.slots,
        exports=numbers.exports,
        export_seconds=numbers.export_seconds,
    )


def _role(numbers: RoleNumbers, pods: RolePods) -> RoleSignals:
    return RoleSignals(
        replicas=pods.replicas,
        pods=tuple(
            Pod(
                ready_seconds=seconds,
                running=numbers.running.get(name),
                waiting=numbers.waiting.get(name),
                busy=numbers.busy.get(name),
                tokens=numbers.tokens.get(name),
                links={
                    link: Link(used.get(name), capacity.get(name))
                    for link, (used, capacity) in numbers.links.items()
                },
            )
            for name, seconds in sorted(pods.ready_seconds.items())
        ),
        placed=pods.placed,
        pending_seconds=pods.pending_seconds,
        queue=numbers.queue,
        latency=numbers.latency,
    )
