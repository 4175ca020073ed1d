"""Which revision answers requests, and whether it does so as it did before."""

from __future__ import annotations

from collections.abc import Iterable

from oasis_operator.api.status import RoleStatus, Status
from oasis_operator.desired.metadata import Component
from oasis_operator.desired.rollout import Rollout
from oasis_operator.reconcile.conditions import READY
from oasis_operator.reconcile.observed import Observed
from oasis_operator.signals.prometheus import NoSignals

NOBODY_SERVES = NoSignals(
    "NoPods",
    "nothing is measured: the pods of the revision before made room for those of this one, which "
    "are not ready yet",
)


def served_by(rollout: Rollout, observed: Observed) -> str | None:
    """The revision that requests go to.

    ``None`` while the one that the endpoint selects has given up a whole role, so that its pods
    make room for those of the target.
    """
    if rollout.serving == rollout.target:
        return rollout.target
    left = [
        rollout.resized.get(view.component, view.wanted)
        for view in observed.deployments()
        if view.revision == rollout.serving and view.component is not Component.ROUTER
    ]
    return rollout.serving if left and all(left) else None


def serves_as_before(
    before: Status, rollout: Rollout, observed: Observed, components: Iterable[Component]
) -> bool:
    """Whether a deployment that was Ready has the ready pods that it had, or all that it wants now.

    Pods that are added are no reason not to be Ready, as in a Deployment that is Available. What
    is kept from one pass to the next is the status, so one that was not Ready becomes so only with
    all of its pods, and another revision is not Ready for what the one before could do.
    """
    same = rollout.target == rollout.serving == before.revision == before.serving_revision
    was = any(item.type == READY and item.status == "True" for item in before.conditions or [])
    return same and was and all(_has(before, observed, rollout.target, c) for c in components)


def _has(before: Status, observed: Observed, revision: str, component: Component) -> bool:
    view = observed.workload(revision, component)
    had = role_status(before, component)
    if view is None or had is None:
        return False
    return view.ready >= max(1, min(view.wanted, had.ready_replicas))


def role_status(status: Status, component: Component) -> RoleStatus | None:
    """Of one component."""
    found: dict[Component, RoleStatus | None] = {
        Component.PREFILL: status.prefill,
        Component.DECODE: status.decode,
        Component.ROUTER: status.router,
    }
    return found[component]
