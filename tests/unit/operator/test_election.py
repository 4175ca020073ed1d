"""A leader whose lease may have ended does not act any more, whatever the API server does."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Callable

import pytest

from oasis_operator.cluster import election
from oasis_operator.cluster.election import Election
from oasis_operator.cluster.errors import ApiError, ConflictError, UnreachableError
from oasis_operator.cluster.kinds import ResourceKind
from oasis_operator.cluster.queue import DirtyQueue
from oasis_operator.desired.metadata import Manifest
from oasis_operator.health import Health

DEADLINE = 0.3
PATIENCE = 20.0
"""Of a test, on a machine that has other things to do."""


class Server:
    """Holds one lease. ``fault`` says what goes wrong with the next write."""

    def __init__(self) -> None:
        self.lease: Manifest = {
            "metadata": {"namespace": "ns", "resourceVersion": "0"},
            "spec": {},
        }
        self.fault: Callable[[], ApiError | None] = lambda: None
        self.answers = True
        self.delay = 0.0
        self.renewed = 0
        self.read = 0

    def give_to(self, holder: str) -> None:
        """Another candidate writes the lease."""
        self._put({**self.lease, "spec": {**self.lease["spec"], "holderIdentity": holder}})

    def _put(self, body: Manifest) -> None:
        version = str(int(self.lease["metadata"]["resourceVersion"]) + 1)
        self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": version}}

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Manifest:
        assert (kind.kind, namespace, name) == ("Lease", "ns", election.LEASE_NAME)
        self.read += 1
        if not self.answers:
            await asyncio.Event().wait()
        return copy.deepcopy(self.lease)

    async def replace(self, kind: ResourceKind, body: Manifest) -> Manifest:
        assert kind.kind == "Lease"
        if not self.answers:
            await asyncio.Event().wait()
        if error := self.fault():
            raise error
        if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise ConflictError("the object has been modified")
        self.renewed += 1
        self._put(body)
        written = copy.deepcopy(self.lease)
        await asyncio.sleep(self.delay)
        return written


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "PERIOD_SECONDS", 0.01)
    monkeypatch.setattr(election, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(election, "RENEW_DEADLINE_SECONDS", DEADLINE)


async def leader(server: Server) -> Election:
    candidate = Election(server, "ns", "me", Health(DirtyQueue()))  # type: ignore[arg-type]
    await candidate.acquire()
    return candidate


async def test_a_leader_that_another_one_has_replaced_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(election, "RENEW_DEADLINE_SECONDS", 10 * PATIENCE)
    server = Server()
    keep = asyncio.create_task((await leader(server)).keep())
    while server.renewed < 3:
        await asyncio.sleep(0)
    server.give_to("other")
    await asyncio.wait_for(keep, PATIENCE)


async def test_a_leader_that_cannot_renew_is_told_by_the_deadline() -> None:
    server, start = Server(), time.monotonic()
    found = await leader(server)
    server.fault = lambda: UnreachableError("refused")
    await asyncio.wait_for(found.keep(), PATIENCE)
    assert time.monotonic() - start >= DEADLINE


async def test_a_leader_that_hears_nothing_at_all_is_told_by_the_deadline_too() -> None:
    server = Server()
    found = await leader(server)
    server.answers = False
    await asyncio.wait_for(found.keep(), PATIENCE)


async def test_a_lease_counts_from_when_it_was_asked_for_and_not_from_the_answer() -> None:
    server = Server()
    server.delay = DEADLINE
    found = await leader(server)
    await asyncio.wait_for(found.keep(), PATIENCE)
    assert server.renewed == 1


async def test_a_leader_whose_renewals_fail_now_and_then_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(election, "RENEW_DEADLINE_SECONDS", PATIENCE)
    server, errors = Server(), iter([ConflictError("modified"), ApiError(500, "slow")] * 10)
    found = await leader(server)
    turn = iter(range(1000))
    server.fault = lambda: next(errors, None) if next(turn) % 3 else None
    keep = asyncio.create_task(found.keep())
    while server.renewed < 10:
        await asyncio.sleep(0.01)
    assert not keep.done()
    keep.cancel()
    assert server.lease["spec"]["holderIdentity"] == "me"


async def test_a_leader_reads_its_lease_again_only_after_somebody_has_written_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(election, "RENEW_DEADLINE_SECONDS", PATIENCE)
    server = Server()
    found = await leader(server)
    keep = asyncio.create_task(found.keep())
    before = server.read
    while server.renewed < 5:
        await asyncio.sleep(0.01)
    assert server.read == before
    server.give_to("me")
    seen = server.renewed
    while server.renewed < seen + 3:
        await asyncio.sleep(0.01)
    assert server.read == before + 1
    assert not keep.done()
    keep.cancel()
