"""No new pods for a role whose pods the kubelet has just refused for their topology."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from oasis_operator.desired.build import Desired, marked
from oasis_operator.desired.metadata import (
    COMPONENT_LABEL,
    REVISION_LABEL,
    WANTED_ANNOTATION,
    Component,
    Manifest,
)
from oasis_operator.desired.pod_maker import DEPLOYMENT
from oasis_operator.reconcile.conditions import Draft
from oasis_operator.reconcile.observed import Observed
from oasis_operator.reconcile.pods import PodView
from oasis_operator.topology.backoff import TOPOLOGY_AFFINITY_ERROR, retry_at


def paused(wanted: Desired, observed: Observed, now: datetime) -> Desired:
    """With as many replicas as there are pods, for roles that must wait before the next try."""

    def slowed(item: Manifest) -> Manifest:
        labels = item["metadata"]["labels"]
        # A LeaderWorkerSet gives up its last groups, which need not be those that were refused.
        if item["kind"] != DEPLOYMENT or labels[COMPONENT_LABEL] == Component.ROUTER:
            return item
        pods = observed.pods_of(labels[REVISION_LABEL], Component(labels[COMPONENT_LABEL]))
        if _retry_at(pods, now) is None:
            return item
        alive = sum(not _refused(pod) and not pod.terminating for pod in pods)
        asked = item["spec"]["replicas"]
        annotations = {**item["metadata"].get("annotations", {}), WANTED_ANNOTATION: str(asked)}
        return marked(
            item
            | {
                "metadata": item["metadata"] | {"annotations": annotations},
                "spec": item["spec"] | {"replicas": min(asked, alive)},
            }
        )

    return replace(wanted, objects=tuple(map(slowed, wanted.objects)))


def with_pause(
    draft: Draft, component: Component, revision: str, observed: Observed, now: datetime
) -> Draft:
    """A role's condition, with the time of the next try."""
    until = _retry_at(observed.pods_of(revision, component), now)
    view = observed.workload(revision, component)
    if until is None or draft.status == "True" or (view is not None and view.grouped):
        return draft
    told = f"{draft.message}; no new pods before {until:%H:%M:%S} UTC"
    return replace(draft, message=told)


def _refused(pod: PodView) -> bool:
    return pod.problem is not None and pod.problem.reason == TOPOLOGY_AFFINITY_ERROR


def _retry_at(pods: list[PodView], now: datetime) -> datetime | None:
    return retry_at((pod.created for pod in pods if _refused(pod)), now)
