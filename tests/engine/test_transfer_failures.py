"""What dies, freezes or talks nonsense, and what the other side makes of it."""

from __future__ import annotations

import dataclasses
import signal
import socket
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import zmq

from oasis_runtime.contract import TRANSFER_PROTOCOL_VERSION
from oasis_runtime.pd import protocol
from oasis_runtime.pd.types import EndReason, Mode, Pages, TransferError, all_pages
from tests.engine.transfer.actors import (
    BLOCKS,
    FINGERPRINT,
    LEASE_SECONDS,
    PAGE_BYTES,
    SETTINGS,
    OwnerActor,
    ReaderActor,
    Remote,
)

Start = Callable[..., list[Remote]]

FEW: Pages = all_pages(2, 2, 2)


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts processes that end with the test, whatever state they are in."""
    running: list[Remote] = []

    def begin(
        *kinds: type, settings: object = SETTINGS, fingerprint: str = FINGERPRINT
    ) -> list[Remote]:
        fresh = [Remote(kind, settings, fingerprint) for kind in kinds]
        running.extend(fresh)
        for remote in fresh:
            remote.ready()
        return fresh

    yield begin
    for remote in running:
        remote.end()


def offer(owner: Remote, request: str, generation: int = 1) -> None:
    owner.call("offer", request, generation, BLOCKS, FEW, 100)


def admitted(reader: Remote, request: str, port: int) -> None:
    reader.call("admit", request, port, 1, Mode.HOT)
    read = reader.call("wait", request, "admission_done", True, 5.0)
    assert (read.lost, len(read.pages), read.wrong) == (None, len(FEW), 0)


def works(owner: Remote, reader: Remote, request: str) -> None:
    """A whole life of a request between the two."""
    offer(owner, request)
    admitted(reader, request, owner.call("port"))
    (ticket,) = reader.call("fetch", {request: FEW})
    read = reader.call("wait", request, "tickets_done", [ticket], 5.0)
    assert (read.tickets_done, read.wrong) == ([ticket], 0)
    reader.call("release", request)
    assert owner.call("wait_ended", 1, 2.0)[0].request_id == request


def start_large_admission(owner: Remote, reader: Remote) -> None:
    """An admission of 64 MB that is under way, with the landing memory not given back."""
    offer(owner, "large")
    reader.call("keep", True)
    reader.call("admit", "large", owner.call("port"), 1, Mode.ALL)
    assert reader.call("wait_pages", "large", 1, 5.0) > 0


def test_a_reader_killed_mid_transfer_leaves_an_owner_that_serves_others(start: Start) -> None:
    (owner,) = start(OwnerActor)
    for _ in range(3):
        (reader,) = start(ReaderActor)
        start_large_admission(owner, reader)
        reader.signal(signal.SIGKILL)
        (ended,) = owner.call("wait_ended", 1, LEASE_SECONDS + 1)
        assert (ended.request_id, ended.reason) == ("large", EndReason.EXPIRED)
    works(owner, start(ReaderActor)[0], "next")
    assert owner.alive()
    assert owner.call("counters").writes_under_way == 0


def test_a_killed_owner_is_noticed_at_once(start: Start) -> None:
    owner, reader = start(OwnerActor, ReaderActor)
    offer(owner, "a")
    admitted(reader, "a", owner.call("port"))
    owner.signal(signal.SIGKILL)
    read = reader.call("wait", "a", "lost", None, 5.0)
    assert "closed the connection" in read.lost
    assert reader.call("wait_landing_free", 2.0) == 0
    works(start(OwnerActor)[0], reader, "b")


def test_an_owner_killed_mid_transfer_loses_its_requests_and_frees_the_landing_memory(
    start: Start,
) -> None:
    owner, reader = start(OwnerActor, ReaderActor)
    start_large_admission(owner, reader)
    owner.signal(signal.SIGKILL)
    assert reader.call("wait", "large", "lost", None, 5.0).lost is not None
    reader.call("keep", False)
    assert reader.call("wait_landing_free", 2.0) == 0
    works(start(OwnerActor)[0], reader, "next")


def test_a_paused_reader_survives_its_owner_dying_mid_transfer(start: Start) -> None:
    (reader,) = start(ReaderActor)
    for _ in range(3):
        (owner,) = start(OwnerActor)
        start_large_admission(owner, reader)
        reader.signal(signal.SIGSTOP)
        owner.signal(signal.SIGKILL)
        owner.end()
        reader.signal(signal.SIGCONT)
        assert reader.call("wait", "large", "lost", None, 5.0).lost is not None
        reader.call("keep", False)
        assert reader.call("wait_landing_free", 2.0) == 0
    works(start(OwnerActor)[0], reader, "next")


def test_a_frozen_owner_is_given_up_within_the_lease(start: Start) -> None:
    owner, reader = start(OwnerActor, ReaderActor)
    offer(owner, "a")
    admitted(reader, "a", owner.call("port"))
    owner.signal(signal.SIGSTOP)
    reader.call("fetch", {"a": FEW})
    read = reader.call("wait", "a", "lost", None, LEASE_SECONDS + 1)
    assert read.lost is not None
    assert reader.call("wait_landing_free", 2.0) == 0
    owner.signal(signal.SIGCONT)
    (ended,) = owner.call("wait_ended", 1, LEASE_SECONDS + 1)
    assert ended.reason is EndReason.EXPIRED
    works(owner, reader, "b")
    assert reader.call("counters").stale_pages == 0


def test_an_owner_frozen_mid_transfer_cannot_write_into_memory_used_again(start: Start) -> None:
    """When it thaws, what it had posted must not appear under the pages of another owner."""
    frozen, other, reader = start(OwnerActor, OwnerActor, ReaderActor)
    start_large_admission(frozen, reader)
    frozen.signal(signal.SIGSTOP)
    assert reader.call("wait", "large", "lost", None, LEASE_SECONDS + 1).lost is not None
    reader.call("keep", False)
    other.call("offer", "b", 1, BLOCKS, FEW, 0)
    reader.call("admit", "b", other.call("port"), 1, Mode.ALL)
    frozen.signal(signal.SIGCONT)
    read = reader.call("wait", "b", "admission_done", True, 10.0)
    assert (read.admission_done, read.wrong) == (True, 0)
    (ended,) = frozen.call("wait_ended", 1, LEASE_SECONDS + 1)
    assert ended.request_id == "large"
    works(frozen, reader, "c")


def test_a_frozen_reader_does_not_hold_exports_and_can_come_back(start: Start) -> None:
    owner, reader = start(OwnerActor, ReaderActor)
    start_large_admission(owner, reader)
    reader.signal(signal.SIGSTOP)
    (ended,) = owner.call("wait_ended", 1, LEASE_SECONDS + 1)
    assert ended.reason is EndReason.EXPIRED
    works(owner, start(ReaderActor)[0], "meanwhile")
    reader.signal(signal.SIGCONT)
    assert reader.call("wait", "large", "lost", None, 5.0).lost is not None
    reader.call("keep", False)
    works(owner, reader, "again")
    assert owner.call("counters").writes_under_way == 0


def test_a_restarted_owner_is_read_under_its_new_name(start: Start) -> None:
    reader, owner = start(ReaderActor, OwnerActor)
    port = owner.call("port")
    works(owner, reader, "before")
    owner.signal(signal.SIGKILL)
    owner.end()
    (again,) = start(OwnerActor, settings=dataclasses.replace(SETTINGS, port=port))
    works(again, reader, "after")


def test_nobody_listening_is_reported_within_the_connect_deadline(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    (reader,) = start(ReaderActor)
    reader.call("admit", "a", port, 1, Mode.HOT)
    read = reader.call("wait", "a", "lost", None, 5.0)
    assert "has not welcomed this engine" in read.lost
    assert read.lost_after < SETTINGS.connect_seconds + 1


@pytest.mark.parametrize(("host", "port"), [("not a host!", 1), ("127.0.0.1", 70000), ("", 1)])
def test_a_peer_that_is_no_address_loses_its_request_only(
    start: Start, host: str, port: int
) -> None:
    owner, reader = start(OwnerActor, ReaderActor)
    reader.call("admit", "a", port, 1, Mode.HOT, None, host)
    read = reader.call("wait", "a", "lost", None, 5.0)
    assert read.lost is not None
    works(owner, reader, "b")


def test_another_layout_is_refused_with_both_layouts_named(start: Start) -> None:
    (owner,) = start(OwnerActor)
    (reader,) = start(ReaderActor, fingerprint="other-model")
    offer(owner, "a")
    reader.call("admit", "a", owner.call("port"), 1, Mode.HOT)
    read = reader.call("wait", "a", "lost", None, 5.0)
    assert "other-model" in read.lost
    assert FINGERPRINT in read.lost


@pytest.fixture
def dealer() -> Iterator[zmq.Socket[bytes]]:
    context = zmq.Context()
    made = context.socket(zmq.DEALER)
    made.rcvtimeo = 5000
    yield made
    context.destroy(linger=0)


def test_another_protocol_version_is_refused_with_both_versions_named(
    start: Start, dealer: zmq.Socket[bytes]
) -> None:
    (owner,) = start(OwnerActor)
    dealer.connect(f"tcp://127.0.0.1:{owner.call('port')}")
    dealer.send(protocol.MAGIC + bytes((200,)) + b"whatever that version says")
    answer = protocol.decode_from_owner(dealer.recv())
    assert isinstance(answer, protocol.Unwelcome)
    assert "version 200" in answer.reason
    assert f"version {TRANSFER_PROTOCOL_VERSION}" in answer.reason


def test_garbage_on_the_port_is_dropped_and_counted(
    start: Start, dealer: zmq.Socket[bytes]
) -> None:
    owner, reader = start(OwnerActor, ReaderActor)
    port = owner.call("port")
    noise = np.random.default_rng(1)
    with socket.create_connection(("127.0.0.1", port)) as raw:
        raw.sendall(noise.bytes(4096))
    dealer.connect(f"tcp://127.0.0.1:{port}")
    for size in (0, 1, 4, 100, 100_000):
        dealer.send(noise.bytes(size))
        dealer.send(protocol.MAGIC + bytes((TRANSFER_PROTOCOL_VERSION,)) + noise.bytes(size))
        dealer.send_multipart([noise.bytes(size)] * 3)
    dealer.send(protocol.encode(protocol.Renew(1, [])))
    assert isinstance(protocol.decode_from_owner(dealer.recv()), protocol.Unwelcome)
    assert owner.call("counters").malformed == 15
    works(owner, reader, "a")


def test_metadata_that_is_none_is_refused(start: Start, dealer: zmq.Socket[bytes]) -> None:
    (owner,) = start(OwnerActor)
    dealer.connect(f"tcp://127.0.0.1:{owner.call('port')}")
    dealer.send(protocol.encode(protocol.Hello(FINGERPRINT, PAGE_BYTES, "x", b"garbage")))
    answer = protocol.decode_from_owner(dealer.recv())
    assert isinstance(answer, protocol.Unwelcome)
    assert "not the metadata of a NIXL agent" in answer.reason
    works(owner, start(ReaderActor)[0], "a")


def test_a_port_that_is_taken_fails_at_start_with_a_sentence(start: Start) -> None:
    (owner,) = start(OwnerActor)
    taken = dataclasses.replace(SETTINGS, port=owner.call("port"))
    with pytest.raises(TransferError, match=r"cannot listen .* transfer\.port to a free port"):
        start(OwnerActor, settings=taken)
