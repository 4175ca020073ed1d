"""Compares a namespace with what ``desired()`` makes of the OasisDeployments in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.desired.build import Images, desired
from oasis_operator.desired.limits import limits_of
from oasis_operator.desired.metadata import (
    COMPONENT_LABEL,
    DEPLOYMENT_LABEL,
    REVISION_LABEL,
    Manifest,
)
from oasis_operator.desired.placement import placements
from oasis_operator.desired.revision_state import goal_of
from oasis_operator.desired.rollout import decide_rollout
from oasis_operator.reconcile.observed import ObjectKey, Observed
from oasis_operator.reconcile.plan import in_place
from oasis_operator.reconcile.pods import PodView
from testbed import wait
from testbed.problem import Problem
from tests.controlplane.operator_process import IMAGES
from tests.controlplane.world import OWNED, SECONDS, World

KINDS = f"{OWNED},resourceclaimtemplates,oasisroles"
DEFAULTS = Images(engine=IMAGES["OASIS_RUNTIME_IMAGE"], router=IMAGES["OASIS_ROUTER_IMAGE"])


def differences(world: World) -> list[str]:
    """What is missing in a namespace, what is there without need, and what is not as it should be.

    For OasisDeployments without devices and autoscaling, and not in the middle of an update.
    """
    bodies = world.get("odep").get("items", [])
    objects, pods = world.owned(KINDS), world.owned("pods")
    named = {body["metadata"]["name"] for body in bodies}
    found = [
        f"{item['kind']} {item['metadata']['name']} belongs to no OasisDeployment"
        for item in (*objects, *pods)
        if item["metadata"]["labels"][DEPLOYMENT_LABEL] not in named
    ]
    for body in bodies:
        od = OasisDeployment.parse(body)
        found += _differences(od, _of(objects, od.name), _of(pods, od.name))
    return found


def until_converged(world: World, timeout: float = SECONDS) -> None:
    """Waits until every OasisDeployment of the namespace is ready and there is no difference."""
    found: list[str] = []

    def converged() -> bool:
        nonlocal found
        found = [*_unready(world.get("odep").get("items", [])), *differences(world)]
        return not found

    try:
        wait.until(converged, "convergence", timeout, every=0.5)
    except Problem as late:
        raise AssertionError(f"{late}: {found}") from late


def _unready(bodies: Iterable[Manifest]) -> Iterator[str]:
    for body in bodies:
        conditions = {c["type"]: c for c in body.get("status", {}).get("conditions", [])}
        ready = conditions.get("Ready", {})
        if (ready.get("status"), ready.get("observedGeneration")) != (
            "True",
            body["metadata"]["generation"],
        ):
            yield f"{body['metadata']['name']} is not ready: {ready}"


def _of(items: Iterable[Manifest], name: str) -> list[Manifest]:
    return [item for item in items if item["metadata"]["labels"][DEPLOYMENT_LABEL] == name]


def _differences(
    od: OasisDeployment, objects: list[Manifest], pods: list[Manifest]
) -> Iterator[str]:
    live = {ObjectKey.of(item): item for item in objects}
    observed = Observed(live, tuple(map(PodView.of, pods)))
    built = desired(
        od,
        DEFAULTS,
        lambda revision: decide_rollout(
            goal_of(od, revision), observed.selected(), observed.revisions(), limits_of(od)
        ),
        placements(od, None, {}),
    )
    wanted = {ObjectKey.of(item): item for item in built.objects}
    for key in wanted.keys() - live.keys():
        yield f"{key.kind} {key.name} is missing"
    for key in live.keys() - wanted.keys():
        yield f"{key.kind} {key.name} is there without need"
    for key in wanted.keys() & live.keys():
        if not in_place(wanted[key], live[key]):
            yield f"{key.kind} {key.name} is not as it should be"
        owners = [owner["uid"] for owner in live[key]["metadata"].get("ownerReferences", [])]
        if owners != [od.uid]:
            yield f"{key.kind} {key.name} has the owners {owners}"
    yield from _pods_too_many_or_few(built.objects, pods)


def _pods_too_many_or_few(wanted: Iterable[Manifest], pods: Iterable[Manifest]) -> Iterator[str]:
    asked = {
        _place(item): item["spec"]["replicas"] for item in wanted if item["kind"] == "Deployment"
    }
    there = Counter(_place(pod) for pod in pods if "deletionTimestamp" not in pod["metadata"])
    for place in asked.keys() | there.keys():
        if there[place] != asked.get(place, 0):
            yield f"{place} has {there[place]} pods and not {asked.get(place, 0)}"


def _place(item: Manifest) -> tuple[str, str]:
    labels = item["metadata"]["labels"]
    return labels[COMPONENT_LABEL], labels[REVISION_LABEL]
