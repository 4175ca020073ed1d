"""Whole lists into the store: before the first reconcile, and now and then after it."""

from __future__ import annotations

from typing import Protocol

from oasis_operator.cluster.kinds import (
    CHILDREN,
    OASIS_DEPLOYMENT,
    OPTIONAL_CHILDREN,
    POD,
    ResourceKind,
)
from oasis_operator.cluster.queue import Key
from oasis_operator.cluster.server import ApiServer
from oasis_operator.cluster.store import Store
from oasis_operator.desired.metadata import DEPLOYMENT_LABEL


class Serves(Protocol):
    """As much of the API server as says what it has."""

    async def served(self, kind: ResourceKind) -> bool: ...


async def child_kinds(server: Serves) -> tuple[ResourceKind, ...]:
    """The kinds of objects that an OasisDeployment of this cluster can have.

    Raises:
        ApiError: the API server does not say.
    """
    return (*CHILDREN, *[kind for kind in OPTIONAL_CHILDREN if await server.served(kind)])


async def refill(server: ApiServer, store: Store, children: tuple[ResourceKind, ...]) -> set[Key]:
    """Reads everything anew; resources last, so that none is there without its objects.

    Returns:
        What is to be looked at: every OasisDeployment, and those of which something is gone.

    Raises:
        ApiError: a list could not be read; what was read before it is kept.
    """
    gone: set[Key] = set()
    for kind in children:
        bodies, version = await server.list_all(kind, DEPLOYMENT_LABEL)
        gone |= store.replace_objects(kind.kind, map(kind.typed, bodies), version)
    gone |= store.replace_pods(*await server.list_all(POD, DEPLOYMENT_LABEL))
    gone |= store.replace_resources(*await server.list_all(OASIS_DEPLOYMENT, ""))
    return gone | set(store.resources())
