"""Which revision serves while another one takes its place.

Prefill and decode pods of different revisions must never talk to each other, so a new revision
is a new pair of Deployments beside the old one, and the router is the switch. Everything that
this decides on can be read from the cluster; nothing is remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Strategy = Literal["Switch", "Recreate"]


@dataclass(frozen=True)
class RevisionState:
    """The engine Deployments of one revision, all roles together."""

    available: bool
    """Every role has as many available pods as it asks for."""
    established: bool
    """Every role was complete at least once."""


@dataclass(frozen=True)
class RouterState:
    """The router's Deployment: the revision it sends requests to."""

    revision: str
    settled: bool
    """No router pod that sends requests to an earlier revision is left."""


@dataclass(frozen=True)
class Rollout:
    """``serving`` is the router's revision; ``kept`` are others that must not be pruned yet."""

    target: str
    serving: str
    kept: frozenset[str]


def decide_rollout(
    target: str,
    revisions: Mapping[str, RevisionState],
    router: RouterState | None,
    strategy: Strategy,
) -> Rollout:
    """One step towards ``target``.

    With ``Switch`` the old revision serves until the new one is available, and stays until no
    router pod uses it. A revision that was never complete has nothing worth keeping: a corrected
    spec replaces it at once.
    """
    others = frozenset(revisions) - {target}
    if router is None or strategy == "Recreate":
        return Rollout(target, target, frozenset())
    if router.revision == target:
        return Rollout(target, target, frozenset() if router.settled else others)
    old = revisions.get(router.revision)
    if old is None or not old.established:
        return Rollout(target, target, frozenset())
    new = revisions.get(target)
    if new is not None and new.available:
        return Rollout(target, target, frozenset({router.revision}))
    return Rollout(target, router.revision, frozenset({router.revision}))
