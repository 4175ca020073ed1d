"""Pods, and why one does not become ready."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from oasis_operator.desired.metadata import COMPONENT_LABEL, REVISION_LABEL
from oasis_operator.desired.workload import GROUP_LABEL
from oasis_operator.topology.backoff import TOPOLOGY_AFFINITY_ERROR

EX_CONFIG = 78
"""Exit status of an engine that cannot work with its configuration (sysexits.h); the sentence
that says why is its termination message."""
CONFIGURATION_REJECTED = "ConfigurationRejected"
MESSAGE_LIMIT = 1000

_IMAGE_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
     "ImageInspectError", "RegistryUnavailable"}
)  # fmt: skip
_CREATE_REASONS = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)


@dataclass(frozen=True)
class Problem:
    """What keeps a pod from being ready. ``reason`` is one word for machines."""

    reason: str
    message: str


@dataclass(frozen=True)
class PodView:
    """What the operator looks at in a pod."""

    name: str
    uid: str
    component: str
    revision: str
    ready: bool
    terminating: bool
    starting: bool
    """Bound to a node, but its container has not been created."""
    has_run: bool
    """A container of it runs or did: it found a place and a device, and what it loads takes time
    that no other place would save."""
    problem: Problem | None
    created: datetime
    ready_changed: datetime
    """When it became ready, or stopped being so."""
    finished: bool = False
    """Its containers have ended for good; it takes no place on a node."""
    group: str = ""
    """What the pods of one engine on several nodes have in common; empty for one that is alone."""

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> PodView:
        metadata, status = body["metadata"], body.get("status") or {}
        labels = metadata.get("labels") or {}
        conditions = {c["type"]: c for c in status.get("conditions") or []}
        ready = conditions.get("Ready", {}).get("status") == "True"
        created = metadata["creationTimestamp"]
        changed = conditions.get("Ready", {}).get("lastTransitionTime") or created
        return cls(
            name=metadata["name"],
            uid=metadata["uid"],
            component=labels.get(COMPONENT_LABEL, ""),
            revision=labels.get(REVISION_LABEL, ""),
            ready=ready,
            terminating=metadata.get("deletionTimestamp") is not None,
            starting=_is_starting(status, conditions),
            has_run=_has_run(status),
            problem=None if ready else _problem(metadata, status, conditions),
            created=datetime.fromisoformat(created),
            ready_changed=datetime.fromisoformat(changed),
            finished=status.get("phase") in ("Succeeded", "Failed"),
            group=labels.get(GROUP_LABEL, ""),
        )


def complaint_of(events: Sequence[Mapping[str, Any]]) -> str:
    """What the kubelet last said, in warnings about one pod, of why its container is not there.

    A probe that fails proves that the container is: the pod as last seen is then older than that.
    """
    about = [event for event in events if event.get("reason") != "Unhealthy"]
    last = max(about, key=lambda event: event.get("lastTimestamp") or "", default=None)
    return " ".join(str(last.get("message", "")).split()) if last else ""


def _containers(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Init containers first: until they are done the others only wait."""
    return [
        *(status.get("initContainerStatuses") or []),
        *(status.get("containerStatuses") or []),
    ]


def _is_starting(status: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]]) -> bool:
    scheduled = conditions.get("PodScheduled", {}).get("status") == "True"
    waiting = [
        (container.get("state") or {}).get("waiting", {}).get("reason")
        for container in _containers(status)
    ]
    return (
        scheduled
        and status.get("phase") == "Pending"
        and all(reason in ("ContainerCreating", "PodInitializing") for reason in waiting)
    )


def _has_run(status: Mapping[str, Any]) -> bool:
    """Init containers count: in phase Pending they may load a model already."""
    return status.get("phase", "Pending") != "Pending" or any(
        container.get("lastState")
        or any(name in (container.get("state") or {}) for name in ("running", "terminated"))
        for container in _containers(status)
    )


def _problem(
    metadata: Mapping[str, Any],
    status: Mapping[str, Any],
    conditions: Mapping[str, Mapping[str, Any]],
) -> Problem | None:
    if status.get("phase") == "Failed" and status.get("reason"):
        # The kubelet refused or evicted it: TopologyAffinityError, UnexpectedAdmissionError, ...
        told = _short(status.get("message", ""))
        if status["reason"] == TOPOLOGY_AFFINITY_ERROR:
            told = (
                f"{told}: its node has no NUMA node with room for it; ask for less, or name a "
                "scheduler that knows NUMA nodes in topology.numa.schedulerName"
            )
        return Problem(status["reason"], told)
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return Problem(
            "Unschedulable", f"no node can take the pod: {_short(scheduled.get('message', ''))}"
        )
    for container in _containers(status):
        problem = _container_problem(metadata, container)
        if problem is not None:
            return problem
    return None


def _container_problem(metadata: Mapping[str, Any], container: Mapping[str, Any]) -> Problem | None:
    state, last = container.get("state") or {}, container.get("lastState") or {}
    waiting = state.get("waiting") or {}
    reason, message = waiting.get("reason", ""), _short(waiting.get("message", ""))
    if reason in _IMAGE_REASONS:
        return Problem("ImagePullFailed", f"image {container['image']} cannot be pulled: {message}")
    if reason in _CREATE_REASONS:
        return Problem("ContainerNotCreated", message)
    ended = state.get("terminated") or last.get("terminated")
    if ended is None or container.get("ready") or _finished_well(container, state):
        return None
    return _exit_problem(ended, _last_words(metadata, container))


def _finished_well(container: Mapping[str, Any], state: Mapping[str, Any]) -> bool:
    """An init container that has done its work."""
    return bool(
        (state.get("terminated") or {}).get("exitCode") == 0 and not container.get("started")
    )


def _last_words(metadata: Mapping[str, Any], container: Mapping[str, Any]) -> str:
    """The command that shows what a container wrote before it ended."""
    return (
        f"kubectl -n {metadata['namespace']} logs --previous {metadata['name']} "
        f"-c {container['name']}"
    )


def _exit_problem(ended: Mapping[str, Any], last_words: str) -> Problem:
    code, message = ended.get("exitCode", 0), _short(ended.get("message", ""))
    if code == EX_CONFIG:
        return Problem(
            CONFIGURATION_REJECTED, message or f"the engine gave no reason: see {last_words}"
        )
    if ended.get("reason") == "OOMKilled":
        return Problem(
            "OutOfMemory",
            "the container was killed for using more than its memory limit: raise "
            "resources.limits.memory or lower kv.hostSize, which each rank allocates",
        )
    told = f"; it ended with: {message}" if message else ""
    return Problem("Crashed", f"the container ended with exit code {code}: see {last_words}{told}")


def _short(message: str) -> str:
    text = " ".join(message.split())
    # The end of a log says more than its beginning.
    return text if len(text) <= MESSAGE_LIMIT else f"... {text[-MESSAGE_LIMIT:]}"
