"""What the cluster has of one OasisDeployment, as read from its objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from oasis_operator.desired.devices import CLAIM, AllocationMode
from oasis_operator.desired.metadata import (
    ALLOCATION,
    COMPONENT_LABEL,
    FROM_SPEC_ANNOTATION,
    IMAGE,
    REVISION_LABEL,
    WANTED_ANNOTATION,
    Component,
    Manifest,
    workers_of,
)
from oasis_operator.desired.pod import ENGINE_CONTAINER
from oasis_operator.desired.pod_maker import LEADER_WORKER_SET, makes_pods, pod_templates
from oasis_operator.desired.revision_state import RevisionState, RolePods
from oasis_operator.desired.router import ROUTER_CONTAINER
from oasis_operator.reconcile.pods import PodView


class ObjectKey(NamedTuple):
    """Kind and name; the namespace is that of the OasisDeployment."""

    kind: str
    name: str

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> ObjectKey:
        return cls(manifest["kind"], manifest["metadata"]["name"])


@dataclass(frozen=True)
class Identity:
    """One object for ever: another one that gets its name later has another uid."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Identity:
        metadata = body["metadata"]
        return cls(metadata["namespace"], metadata["name"], metadata["uid"])

    @property
    def metadata(self) -> Manifest:
        """As a request says it that is meant for this object alone."""
        return {"namespace": self.namespace, "name": self.name, "uid": self.uid}


@dataclass(frozen=True)
class DeploymentView:
    """Progress of one Deployment or LeaderWorkerSet, as far as its controller has seen the latest
    spec. What is counted are engines or routers, which in a LeaderWorkerSet are groups of pods."""

    revision: str
    component: Component
    images: Mapping[str, str]
    allocation: AllocationMode | None
    """How its pods get their devices; ``None`` for pods without any."""
    wanted: int
    ready: int
    available: int
    updated: int
    current: bool
    """The Deployment's controller has seen this generation."""
    total: int
    established: bool
    deadline_exceeded: bool
    failure: str
    """Why its controller cannot create pods, such as an exceeded quota; empty if it can."""
    from_spec: frozenset[str] = frozenset()
    """What of images and allocation the spec said that it was made from."""
    grouped: bool = False
    """A LeaderWorkerSet."""

    @classmethod
    def of(cls, body: Manifest) -> DeploymentView:
        metadata, spec, status = body["metadata"], body["spec"], body.get("status") or {}
        annotations = metadata.get("annotations") or {}
        pod = pod_templates(body)[0]["spec"]
        grouped = body["kind"] == LEADER_WORKER_SET
        ready = status.get("readyReplicas") or 0
        return cls(
            revision=metadata["labels"].get(REVISION_LABEL, ""),
            component=Component(metadata["labels"][COMPONENT_LABEL]),
            images={item["name"]: item.get("image", "") for item in pod["containers"]},
            allocation=_allocation(pod),
            wanted=int(annotations.get(WANTED_ANNOTATION, spec.get("replicas", 1))),
            ready=ready,
            available=ready if grouped else status.get("availableReplicas") or 0,
            updated=status.get("updatedReplicas") or 0,
            total=status.get("replicas") or 0,
            from_spec=frozenset(annotations.get(FROM_SPEC_ANNOTATION, "").split(",")),
            grouped=grouped,
            **(_group_progress(status) if grouped else _progress(metadata, status)),
        )

    @property
    def complete(self) -> bool:
        """All wanted pods run the current template and are available, and no others are left."""
        return (
            self.current
            and self.updated == self.wanted == self.total
            and self.available >= self.wanted
        )


@dataclass(frozen=True)
class Observed:
    """Owned objects and pods of one OasisDeployment."""

    objects: Mapping[ObjectKey, Manifest] = field(default_factory=dict)
    pods: tuple[PodView, ...] = ()

    def deployments(self) -> list[DeploymentView]:
        return [
            DeploymentView.of(body) for key, body in self.objects.items() if makes_pods(key.kind)
        ]

    def workload(self, revision: str, component: Component) -> DeploymentView | None:
        for view in self.deployments():
            if view.revision == revision and view.component is component:
                return view
        return None

    def pods_of(self, revision: str, component: Component) -> list[PodView]:
        """Pods of one role in one revision, also those that are going; of an engine on several
        nodes the one that answers."""
        return [p for p in self.pods if p.component == component and p.revision == revision]

    def members_of(self, revision: str, component: Component) -> list[PodView]:
        """As :meth:`pods_of`, with all pods of an engine on several nodes."""
        both = (component, workers_of(component))
        return [p for p in self.pods if p.component in both and p.revision == revision]

    def selected(self) -> str | None:
        """The revision whose routers the endpoint selects; ``None`` without an endpoint."""
        for key, body in self.objects.items():
            if key.kind == "Service":
                revision = (body["spec"].get("selector") or {}).get(REVISION_LABEL)
                if revision is not None:
                    return str(revision)
        return None

    def revisions(self) -> dict[str, RevisionState]:
        """State of every revision that has Deployments or pods."""
        views = {(view.revision, view.component): view for view in self.deployments()}
        pods: dict[tuple[str, str], list[PodView]] = {}
        for pod in self.pods:
            if not pod.finished:
                pods.setdefault((pod.revision, pod.component), []).append(pod)
        return {
            revision: _state(revision, views, pods)
            for revision in sorted({key[0] for key in (*views, *pods)})
        }

    def proven_allocation(self) -> dict[Component, AllocationMode]:
        """How the serving pods of each role get their devices, once they were complete.

        As :meth:`proven_image`, not where a spec said how.
        """
        serving = self.selected()
        return {
            view.component: view.allocation
            for view in self.deployments()
            if view.revision == serving
            and view.component is not Component.ROUTER
            and view.established
            and view.allocation is not None
            and ALLOCATION not in view.from_spec
        }

    def proven_image(self, component: Component) -> str | None:
        """Image that the serving pods of a component run, once they were complete with it.

        A spec without an image keeps it, so that an operator with another default changes no
        pod. One that never worked is no reason to stay, nor is one that a spec named: a spec that
        names it no more gets what one gets that never did.
        """
        serving = self.selected()
        view = self.workload(serving, component) if serving is not None else None
        if view is None or not view.established or IMAGE in view.from_spec:
            return None
        name = ROUTER_CONTAINER if component is Component.ROUTER else ENGINE_CONTAINER
        return view.images.get(name)


def _progress(metadata: Manifest, status: Manifest) -> dict[str, Any]:
    """What a Deployment says of itself."""
    conditions = {c["type"]: c for c in status.get("conditions") or []}
    progressing = conditions.get("Progressing", {})
    failing = conditions.get("ReplicaFailure", {})
    return {
        "current": status.get("observedGeneration", 0) >= metadata.get("generation", 0),
        # Stays after the rollout was complete once, also while pods are not ready later.
        "established": progressing.get("reason") == "NewReplicaSetAvailable",
        "deadline_exceeded": progressing.get("reason") == "ProgressDeadlineExceeded",
        "failure": failing.get("message", "") if failing.get("status") == "True" else "",
    }


def _group_progress(status: Manifest) -> dict[str, Any]:
    """What a LeaderWorkerSet says of itself (v1): no generation, no deadline and no failure.

    Its counts tell when another spec was not seen yet, but for one that changes no count, and such
    a change is another object. ``Available`` is there from the first time that all groups were.
    """
    conditions = {c["type"] for c in status.get("conditions") or []}
    return {
        "current": True,
        "established": "Available" in conditions,
        "deadline_exceeded": False,
        "failure": "",
    }


def _state(
    revision: str,
    views: Mapping[tuple[str, Component], DeploymentView],
    pods: Mapping[tuple[str, str], list[PodView]],
) -> RevisionState:
    roles = {}
    for component in (Component.PREFILL, Component.DECODE):
        view, found = views.get((revision, component)), pods.get((revision, component), [])
        left = _left_behind(found, pods.get((revision, workers_of(component)), []))
        if view is not None or found or left:
            roles[component] = RolePods(
                wanted=view.wanted if view else 0,
                held=len(found) + left,
                leaving=sum(pod.terminating for pod in found) + left,
                ready=_ready(found),
            )
    engines = [views.get((revision, component)) for component in roles]
    routers = pods.get((revision, Component.ROUTER), [])
    return RevisionState(
        roles=roles,
        established=bool(engines) and all(view and view.established for view in engines),
        routers=len(routers),
        ready_routers=_ready(routers),
    )


def _left_behind(leaders: Iterable[PodView], workers: Iterable[PodView]) -> int:
    """Groups whose leader is gone: the others follow it, and hold their places until then."""
    return len({pod.group for pod in workers} - {pod.group for pod in leaders})


def _ready(pods: Iterable[PodView]) -> int:
    return sum(pod.ready and not pod.terminating for pod in pods)


def _allocation(pod: Manifest) -> AllocationMode | None:
    if any(claim["name"] == CLAIM for claim in pod.get("resourceClaims") or ()):
        return "dra"
    engine = pod["containers"][0].get("resources") or {}
    return "kubelet" if any("/" in name for name in engine.get("limits") or {}) else None
