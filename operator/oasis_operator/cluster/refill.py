"""Whole lists into the store: before the first reconcile, and now and then after it."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Protocol

from oasis_operator.cluster.kinds import (
    CHILDREN,
    OASIS_DEPLOYMENT,
    OPTIONAL_CHILDREN,
    POD,
    ResourceKind,
)
from oasis_operator.cluster.patience import patiently
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
    served = [await patiently(partial(server.served, kind)) for kind in OPTIONAL_CHILDREN]
    return (*CHILDREN, *itertools.compress(OPTIONAL_CHILDREN, served))


async def refill(server: ApiServer, store: Store, children: tuple[ResourceKind, ...]) -> set[Key]:
    """Reads everything anew; resources last, so that none is there without its objects.

    Returns:
        What is to be looked at: every OasisDeployment, and those of which something is gone.

    Raises:
        ApiError: a list could not be read; what was read before it is kept.
    """
    gone: set[Key] = set()
    for kind in children:
        bodies, version = await patiently(partial(server.list_all, kind, DEPLOYMENT_LABEL))
        gone |= store.replace_objects(kind.kind, map(kind.typed, bodies), version)
    pods = await patiently(partial(server.list_all, POD, DEPLOYMENT_LABEL))
    gone |= store.replace_pods(*pods)
    resources = await patiently(partial(server.list_all, OASIS_DEPLOYMENT, ""))
    gone |= store.replace_resources(*resources)
    return gone | set(store.resources())
