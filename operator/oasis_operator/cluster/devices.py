"""The cluster's devices, read when somebody needs them and kept for a moment."""

from __future__ import annotations

import asyncio
import time

from oasis_operator.cluster.kinds import DEVICE_CLASS, NODE, RESOURCE_CLAIM, RESOURCE_SLICE
from oasis_operator.cluster.server import ApiServer
from oasis_operator.topology.inventory import Inventory, inventory

FRESH_SECONDS = 2.0
"""Many OasisDeployments that are looked at together read the devices once."""


class Devices:
    """Lists, not watches: they are needed rarely, and taken and freed often."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._lock = asyncio.Lock()
        self._read: dict[bool, tuple[float, Inventory | None]] = {}

    async def inventory(self, *, with_claims: bool) -> Inventory | None:
        """What there is; ``None`` where the cluster does not serve resource.k8s.io/v1.

        Args:
            with_claims: also what is taken, which is a list as long as the cluster has pods.

        Raises:
            ApiError: a list could not be read.
        """
        async with self._lock:
            when, found = self._read.get(with_claims, (float("-inf"), None))
            if time.monotonic() - when > FRESH_SECONDS:
                found = await self._listed(with_claims)
                self._read[with_claims] = (time.monotonic(), found)
            return found

    async def _listed(self, with_claims: bool) -> Inventory | None:
        if not await self._server.served(RESOURCE_SLICE):
            return None
        slices, _ = await self._server.list_all(RESOURCE_SLICE, "")
        classes, _ = await self._server.list_all(DEVICE_CLASS, "")
        claims = (await self._server.list_all(RESOURCE_CLAIM, ""))[0] if with_claims else []
        return inventory(slices, classes, claims, await self._server.list_metadata(NODE))
