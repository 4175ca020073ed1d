"""Leader election by a Lease: one replica acts, the others wait.

Only local clocks are compared: a lease counts as expired when this process has seen it
unchanged for its whole duration.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Protocol

from oasis_operator.cluster.errors import ApiError, ConflictError, MissingError
from oasis_operator.cluster.kinds import LEASE
from oasis_operator.cluster.limiter import Priority
from oasis_operator.cluster.server import ApiServer
from oasis_operator.desired.metadata import Manifest

LEASE_NAME = "oasiskv-operator"
DURATION_SECONDS = 15
RENEW_DEADLINE_SECONDS = 10.0
"""A leader that could not renew for so long stops, before another one may start."""
PERIOD_SECONDS = 2.0
RETRY_SECONDS = 1.0
"""After an attempt to renew that failed."""

log = logging.getLogger(__name__)


class SignsOfLife(Protocol):
    """Who wants to know that the election goes on."""

    def election_tried(self) -> None: ...

    def election_heard(self) -> None: ...


class _TakenError(Exception):
    """Another candidate has the lease."""


class Election:
    """One candidate."""

    def __init__(
        self, server: ApiServer, namespace: str, identity: str, signs: SignsOfLife
    ) -> None:
        self._server = server
        self._namespace = namespace
        self._identity = identity
        self._signs = signs
        self._seen: tuple[object, object] | None = None
        self._seen_at = 0.0
        self._own: Manifest | None = None
        """The lease as this candidate wrote it last, while nobody is known to have changed it."""
        self._renewed = 0.0
        """When the last renewal was asked for: others may have seen it before it was answered."""

    async def acquire(self) -> None:
        """Returns when this candidate leads."""
        while not await self._try(leading=False):
            await asyncio.sleep(PERIOD_SECONDS)

    async def keep(self) -> None:
        """Renews until another candidate has the lease, or until renewing has failed for too
        long, then returns: the lease is lost, and this process must not act any more."""
        pause = PERIOD_SECONDS
        try:
            while True:
                left = self._renewed + RENEW_DEADLINE_SECONDS - time.monotonic()
                # A request that is not answered must not outlast the deadline either.
                async with asyncio.timeout(left):
                    await asyncio.sleep(pause)
                    held = await self._try(leading=True)
                pause = PERIOD_SECONDS if held else RETRY_SECONDS
        except (_TakenError, TimeoutError):
            return

    async def release(self) -> None:
        """Lets another candidate lead at once."""
        try:
            lease = await self._server.get(LEASE, self._namespace, LEASE_NAME)
            if lease["spec"].get("holderIdentity") == self._identity:
                lease["spec"] |= {"holderIdentity": "", "renewTime": _now()}
                await self._server.replace(LEASE, lease)
        except ApiError as error:
            log.warning("the lease could not be released and must expire: %s", error)

    async def _try(self, *, leading: bool) -> bool:
        """One attempt to take or to renew; whether this candidate holds the lease after it.

        Raises:
            _TakenError: this candidate leads, and another one has the lease. Even where that one
                has left it again, it may have acted.
        """
        self._signs.election_tried()
        began = time.monotonic()
        try:
            if leading and await self._renewed_unread(began):
                return True
            lease = await self._read()
            spec = lease["spec"]
            mine = spec.get("holderIdentity") == self._identity
            if leading and not mine:
                raise _TakenError
            if mine or self._free(spec):
                await self._write(self._claimed(lease, mine), began)
                return True
            self._signs.election_heard()
        except ApiError as error:
            log.warning("election: %s", error)
        return False

    async def _renewed_unread(self, began: float) -> bool:
        """Whether the lease could be renewed as it was written last. Nothing is read then: where a
        part of all requests fails, one comes through more often than two."""
        if self._own is None:
            return False
        try:
            await self._write(self._claimed(self._own, mine=True), began)
        except (ConflictError, MissingError):
            self._own = None
        return self._own is not None

    async def _write(self, lease: Manifest, began: float) -> None:
        self._own = await self._server.replace(LEASE, lease)
        self._signs.election_heard()
        self._renewed = began

    async def _read(self) -> Manifest:
        with suppress(MissingError):
            return await self._server.get(LEASE, self._namespace, LEASE_NAME)
        empty: Manifest = {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {"name": LEASE_NAME, "namespace": self._namespace},
            "spec": {},
        }
        return {"spec": {}} | await self._server.create(LEASE, empty, Priority.SPEC)

    def _free(self, spec: dict[str, Any]) -> bool:
        seen = (spec.get("holderIdentity"), spec.get("renewTime"))
        if seen != self._seen:
            self._seen, self._seen_at = seen, time.monotonic()
        expired = time.monotonic() - self._seen_at > spec.get(
            "leaseDurationSeconds", DURATION_SECONDS
        )
        return not spec.get("holderIdentity") or expired

    def _claimed(self, lease: Manifest, mine: bool) -> Manifest:
        now = _now()
        spec = lease["spec"] | {
            "holderIdentity": self._identity,
            "renewTime": now,
            "leaseDurationSeconds": DURATION_SECONDS,
        }
        if not mine:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = (spec.get("leaseTransitions") or 0) + 1
        return lease | {"spec": spec}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
