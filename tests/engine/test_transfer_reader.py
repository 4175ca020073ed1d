"""What a reader makes of an owner that says this or that; the owner is played by the test."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import TypeVar

import numpy as np
import pytest
import zmq

from oasis_runtime.pd import protocol
from oasis_runtime.pd.importer import Importer
from oasis_runtime.pd.types import (
    Admitted,
    Event,
    Landed,
    Lost,
    Mode,
    Pages,
    Peer,
    all_pages,
    encode_pages,
)
from tests.engine.transfer.actors import DIGEST, FINGERPRINT, PAGE_BYTES, SETTINGS

M = TypeVar("M", bound=protocol.Message)

HOT: Pages = all_pages(1, 1, 3)


class PlayedOwner:
    """A control port whose answers the test writes."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self._socket = context.socket(zmq.ROUTER)
        self._socket.rcvtimeo = 5000
        self.peer = Peer("127.0.0.1", self._socket.bind_to_random_port("tcp://127.0.0.1"))
        self._reader = b""

    def hears(self, kind: type[M]) -> M:
        """The next message of this kind; heartbeats in between are answered."""
        while True:
            self._reader, data = self._socket.recv_multipart()
            message = protocol.decode_from_reader(data)
            if isinstance(message, kind):
                return message
            assert isinstance(message, protocol.Renew), message
            self.says(protocol.Renewed(message.op, []))

    def answers_heartbeats(self) -> None:
        """Renews whatever is asked for, and answers nothing else."""
        while self._socket.poll(10):
            self._reader, data = self._socket.recv_multipart()
            message = protocol.decode_from_reader(data)
            if isinstance(message, protocol.Renew):
                self.says(protocol.Renewed(message.op, []))

    def says(self, message: protocol.FromOwner) -> None:
        self.says_bytes(protocol.encode(message))

    def says_bytes(self, data: bytes) -> None:
        self._socket.send_multipart((self._reader, data))

    def welcomes(self) -> None:
        self.hears(protocol.Hello)
        self.says(protocol.Welcome("played", SETTINGS.lease_seconds))

    def admits(self, blob_bytes: int = 0, digest: bytes = DIGEST) -> protocol.Admit:
        admit = self.hears(protocol.Admit)
        self.says(protocol.Admission(admit.op, 96, 1, 1, 3, blob_bytes, encode_pages(HOT), digest))
        return admit


@pytest.fixture
def owner() -> Iterator[PlayedOwner]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield PlayedOwner(context)
    context.destroy(linger=0)


@pytest.fixture
def importer() -> Iterator[Importer]:
    made = Importer(dataclasses.replace(SETTINGS, queue_limit=2), FINGERPRINT, PAGE_BYTES)
    made.start()
    yield made
    made.close()


def events(importer: Importer, count: int = 1) -> list[Event]:
    got: list[Event] = []
    deadline = time.monotonic() + 5
    while len(got) < count and time.monotonic() < deadline:
        got += importer.poll()
    return got


def lands_free(importer: Importer) -> bool:
    deadline = time.monotonic() + 5
    while importer.counters().landing_used_bytes and time.monotonic() < deadline:
        importer.poll()
    return importer.counters().landing_used_bytes == 0


def test_pages_that_arrive_after_the_lease_was_lost_are_stale_and_not_handed_out(
    owner: PlayedOwner, importer: Importer
) -> None:
    importer.admit("a", owner.peer, "remote", 4, DIGEST)
    owner.welcomes()
    assert owner.admits().holding == protocol.Holding("remote", 4)
    fetch = owner.hears(protocol.Fetch)
    renew = owner.hears(protocol.Renew)
    while not renew.holdings:
        owner.says(protocol.Renewed(renew.op, []))
        renew = owner.hears(protocol.Renew)
    owner.says(protocol.Renewed(renew.op, ["remote"]))
    admitted, lost = events(importer, 2)
    assert isinstance(admitted, Admitted)
    assert isinstance(lost, Lost)
    assert importer.counters().landing_quarantined_bytes > 0
    owner.says(protocol.Fetched(fetch.op, [], 10))
    assert lands_free(importer)
    assert importer.poll() == []
    assert importer.counters().stale_pages == len(HOT)
    assert importer.counters().admission_bytes == 0


def test_pages_that_arrive_after_their_release_are_dropped_but_not_stale(
    owner: PlayedOwner, importer: Importer
) -> None:
    importer.admit("a", owner.peer, "remote", 4, DIGEST)
    owner.welcomes()
    owner.admits()
    fetch = owner.hears(protocol.Fetch)
    importer.release("a")
    assert owner.hears(protocol.Release).holdings == [protocol.Holding("remote", 4)]
    owner.says(protocol.Fetched(fetch.op, [], 10))
    assert lands_free(importer)
    assert importer.poll() == []
    assert importer.counters().stale_pages == 0
    assert importer.counters().abandoned_pages == len(HOT)


def test_an_export_that_is_released_before_its_admission_is_released_once_that_comes(
    owner: PlayedOwner, importer: Importer
) -> None:
    importer.admit("a", owner.peer, "remote", 4, DIGEST)
    owner.welcomes()
    admit = owner.hears(protocol.Admit)
    importer.release("a")
    importer.admit("b", owner.peer, "other", 5, DIGEST)
    owner.hears(protocol.Admit)  # by now the reader knows of the release
    owner.says(protocol.Admission(admit.op, 96, 1, 1, 3, 0, encode_pages(HOT), DIGEST))
    assert owner.hears(protocol.Release).holdings == [protocol.Holding("remote", 4)]


def test_an_export_that_is_released_before_the_welcome_is_released_after_it(
    owner: PlayedOwner, importer: Importer
) -> None:
    importer.admit("a", owner.peer, "remote", 4, DIGEST)
    importer.release("a")
    owner.welcomes()
    owner.admits()
    assert owner.hears(protocol.Release).holdings == [protocol.Holding("remote", 4)]


def test_an_export_of_another_prompt_is_not_released(
    owner: PlayedOwner, importer: Importer
) -> None:
    """A router that pairs answers wrongly must not take another request's KV away."""
    importer.admit("a", owner.peer, "remote", 4, DIGEST)
    importer.release("a")
    owner.welcomes()
    owner.admits(digest=b"of another prompt")
    # The next that is heard is of the next request: no Release came before.
    importer.admit("b", owner.peer, "other", 5, DIGEST)
    assert owner.admits().holding == protocol.Holding("other", 5)
    assert importer.counters().refused == 0


def test_a_request_can_be_read_again_under_the_same_id(
    owner: PlayedOwner, importer: Importer
) -> None:
    importer.admit("a", owner.peer, "remote", 4, DIGEST)
    with pytest.raises(ValueError, match="being read already"):
        importer.admit("a", owner.peer, "remote", 4, DIGEST)
    owner.welcomes()
    owner.admits()
    first = owner.hears(protocol.Fetch)
    importer.release("a")
    importer.admit("a", owner.peer, "remote", 5, DIGEST)
    owner.hears(protocol.Release)
    assert owner.admits().holding.generation == 5
    owner.says(protocol.Fetched(first.op, [], 10))
    second = owner.hears(protocol.Fetch)
    owner.says(protocol.Fetched(second.op, [], 10))
    admitted, landed = events(importer, 2)
    assert isinstance(admitted, Admitted)
    assert isinstance(landed, Landed)
    landed.done()
    assert importer.counters().abandoned_pages == len(HOT)


def test_landed_pages_are_given_back_once(owner: PlayedOwner, importer: Importer) -> None:
    importer.admit("a", owner.peer, "remote", 4, DIGEST)
    owner.welcomes()
    owner.admits()
    owner.says(protocol.Fetched(owner.hears(protocol.Fetch).op, [], 10))
    _, landed = events(importer, 2)
    assert isinstance(landed, Landed)
    assert landed.data.shape == (len(HOT), PAGE_BYTES)
    landed.done()
    with pytest.raises(ValueError, match="already been given back"):
        landed.done()


def test_too_many_waiting_fetches_are_turned_down(owner: PlayedOwner, importer: Importer) -> None:
    importer.admit("a", owner.peer, "remote", 4, DIGEST)
    first = importer.fetch("a", HOT)
    second = importer.fetch("a", HOT)
    assert first is not None
    assert second is not None
    assert importer.fetch("a", HOT) is None
    owner.welcomes()
    owner.admits()
    owner.hears(protocol.Fetch)
    assert importer.fetch("a", HOT) is not None


def test_fetching_for_a_request_that_is_not_read_is_an_error(importer: Importer) -> None:
    with pytest.raises(ValueError, match="not being read"):
        importer.fetch("nobody", HOT)


def test_an_empty_fetch_is_an_error(owner: PlayedOwner, importer: Importer) -> None:
    importer.admit("a", owner.peer, "remote", 4, DIGEST)
    with pytest.raises(ValueError, match="at least one page"):
        importer.fetch("a", np.zeros((0, 3), dtype=np.int32))


def test_nothing_is_asked_of_an_export_of_another_prompt_and_it_is_left_to_its_reader(
    owner: PlayedOwner, importer: Importer
) -> None:
    importer.admit("a", owner.peer, "remote", 4, DIGEST)
    owner.welcomes()
    owner.admits(digest=b"of another prompt")
    (lost,) = events(importer)
    assert isinstance(lost, Lost)
    assert "remote" in lost.reason
    assert "another prompt" in lost.reason
    # The next that is heard is of the next request: neither a Fetch nor a Release came before.
    importer.admit("b", owner.peer, "other", 5, DIGEST)
    assert owner.admits().holding == protocol.Holding("other", 5)
    assert importer.counters().refused == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (protocol.MAGIC + bytes((99,)) + b"?", "speaks version 99"),
        (b"HTTP/1.1 400 Bad Request", "not a message of the KV transfer protocol"),
        (protocol.encode(protocol.Renew(1, [])), "malformed message of an owner"),
    ],
)
def test_an_owner_that_talks_otherwise_loses_its_requests_with_a_sentence(
    owner: PlayedOwner, importer: Importer, answer: bytes, said: str
) -> None:
    importer.admit("a", owner.peer, "remote", 4, DIGEST)
    owner.hears(protocol.Hello)
    owner.says_bytes(answer)
    (lost,) = events(importer)
    assert isinstance(lost, Lost)
    assert said in lost.reason


def test_an_owner_that_renews_but_never_sends_is_given_up(
    owner: PlayedOwner, importer: Importer
) -> None:
    importer.admit("a", owner.peer, "remote", 4, DIGEST, Mode.ALL)
    owner.welcomes()
    owner.admits()
    began = time.monotonic()
    lost: list[Event] = []
    while not lost and time.monotonic() < began + SETTINGS.operation_seconds + 2:
        lost = [event for event in importer.poll() if isinstance(event, Lost)]
        owner.answers_heartbeats()
    assert isinstance(lost[0], Lost)
    assert "has not done what was asked for" in lost[0].reason
    assert lands_free(importer)
