"""RouterReady, and Ready: whether this spec is served."""

from __future__ import annotations

from collections.abc import Iterable

from oasis_operator.reconcile.conditions import READY, ROUTER_READY, Draft, all_ready
from oasis_operator.reconcile.observed import DeploymentView
from oasis_operator.reconcile.pods import PodView


def router_condition(view: DeploymentView | None, pods: Iterable[PodView]) -> Draft:
    """Router pods are ready when they know a ready pod of each role."""
    if view is None:
        return Draft(ROUTER_READY, "False", "Creating", "the router Deployment is being created")
    if view.complete:
        return Draft(ROUTER_READY, "True", "AllReady", all_ready(view.wanted, "router"))
    count = f"{view.available} of {view.wanted} router pods are ready"
    if view.failure:
        return Draft(ROUTER_READY, "False", "PodsNotCreated", f"{count}: {view.failure}", True)
    for pod in sorted(pods, key=lambda p: p.name):
        if pod.problem is not None and not pod.terminating:
            return Draft(
                ROUTER_READY,
                "False",
                pod.problem.reason,
                f"{count}; pod {pod.name}: {pod.problem.message}",
                True,
            )
    return Draft(
        ROUTER_READY,
        "False",
        "WaitingForEngines",
        f"{count}; a router is ready once it knows a ready pod of each role",
    )


def ready_condition(parts: Iterable[Draft], as_before: bool) -> Draft:
    """True if all parts are; otherwise a part that is not says why: one that somebody must act on
    before one that only needs time, and the first among equals.

    Args:
        parts: the conditions of the components.
        as_before: it was Ready with this revision and has the pods that it had, so that those
            which are missing are being added.
    """
    missing = [part for part in parts if part.status != "True"]
    if not missing:
        return Draft(READY, "True", "Serving", "all pods serve this spec")
    worst = min(missing, key=lambda part: not part.alarming)
    if as_before:
        told = f"the pods that there were serve; {worst.type}: {worst.message}"
        return Draft(READY, "True", "AddingPods", told)
    return Draft(READY, "False", worst.reason, f"{worst.type}: {worst.message}")
