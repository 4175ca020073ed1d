"""Keeps the parts of the OasisRoles that server-side apply cannot: first replicas, and status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oasis_operator.cluster.kinds import OASIS_ROLE
from oasis_operator.cluster.server import ApiServer
from oasis_operator.cluster.store import Store
from oasis_operator.reconcile.observed import Observed
from oasis_operator.reconcile.scaling import TargetState, scale_targets


class ScaleTargets:
    """Writes only what is different."""

    def __init__(self, server: ApiServer, store: Store) -> None:
        self._server = server
        self._store = store

    async def sync(self, observed: Observed, replicas: Mapping[str, int]) -> None:
        """``replicas``: component -> pods that it has until somebody else says otherwise."""
        for target in scale_targets(observed):
            if target.replicas is None:
                live = await self._server.scale(
                    OASIS_ROLE, target.identity, replicas[target.component]
                )
                self._store.keep_object(live)
            if target.status != target.wanted_status:
                written = await self._server.apply_status(OASIS_ROLE, _status(target))
                self._store.keep_object(written)


def _status(target: TargetState) -> dict[str, Any]:
    return {
        "apiVersion": OASIS_ROLE.api_version,
        "kind": OASIS_ROLE.kind,
        "metadata": target.identity.metadata,
        "status": target.wanted_status,
    }
