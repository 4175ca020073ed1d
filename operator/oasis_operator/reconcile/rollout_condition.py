"""What an update says about the target's pods and the router, over what these say themselves."""

from __future__ import annotations

from oasis_operator.desired.metadata import Component
from oasis_operator.desired.rollout import Rollout
from oasis_operator.reconcile.conditions import Draft

NO_ROOM = "NoRoomForUpdate"


def with_rollout(draft: Draft, component: Component, rollout: Rollout, asked: int) -> Draft:
    """A role's condition: pods that are not made yet are missing too.

    Args:
        draft: what the role's Deployment and pods say.
        component: the role.
        rollout: the step of the update.
        asked: replicas that the spec asks for.
    """
    made = (rollout.replicas or {}).get(component, 0)
    if made >= asked:
        return draft
    if rollout.blocked:
        return Draft(draft.type, "False", NO_ROOM, _blocked(rollout))
    if draft.status != "True" and made:
        return draft
    return Draft(
        draft.type,
        "False",
        "WaitingForRoom",
        f"{made} of {asked} {component} pods of revision {rollout.target} have a place: the "
        "others are made when pods of the revision before are gone",
    )


def router_with_rollout(draft: Draft, rollout: Rollout, served: str | None) -> Draft:
    """RouterReady: until the switch, why there is none yet.

    Args:
        draft: what the router's Deployment and pods say.
        rollout: the step of the update.
        served: the revision that requests go to, if any.
    """
    if rollout.serving == rollout.target:
        return draft
    if rollout.blocked:
        return Draft(draft.type, "False", NO_ROOM, _blocked(rollout), alarming=True)
    if served is None:
        return Draft(
            draft.type,
            "False",
            "Updating",
            f"nobody serves: the pods of revision {rollout.serving} made room for those of "
            f"{rollout.target}, which are not ready yet",
        )
    return Draft(
        draft.type,
        "False",
        "Updating",
        f"the router sends requests to revision {rollout.serving} until the pods of revision "
        f"{rollout.target} are ready",
    )


def _blocked(rollout: Rollout) -> str:
    return f"revision {rollout.serving} goes on serving: {rollout.blocked}"
