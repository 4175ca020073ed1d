"""Tells Events: each once, and again by its count."""

from __future__ import annotations

import logging

from oasis_operator.cluster.errors import ConflictError, MissingError, RefusedError
from oasis_operator.cluster.events import told_again
from oasis_operator.cluster.kinds import EVENT
from oasis_operator.cluster.server import ApiServer
from oasis_operator.desired.metadata import Manifest
from oasis_operator.reconcile.observed import Identity

log = logging.getLogger(__name__)


class Recorder:
    """An Event that cannot be written hides nothing else: it is left out."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    async def tell(self, event: Manifest) -> None:
        """Creates it, or counts the one that says the same."""
        log.info("%s: %s", event["reason"], event["message"])
        try:
            await self._server.create(EVENT, event)
        except ConflictError:
            await self._again(event)
        except (RefusedError, MissingError) as error:
            # A quota, for example.
            log.warning("no Event: %s", error)

    async def _again(self, event: Manifest) -> None:
        metadata = event["metadata"]
        found = await self._server.find(EVENT, metadata["namespace"], metadata["name"])
        changes = told_again(event, found) if found else {}
        if found is None or not changes:
            return
        try:
            await self._server.count(EVENT, Identity.of(found), changes)
        except (RefusedError, MissingError, ConflictError) as error:
            log.warning("no Event: %s", error)
