"""What an owner sends while leases run out under its hands; real agents, a clock by hand."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from oasis_runtime.pd import protocol
from oasis_runtime.pd.agent import Agent
from oasis_runtime.pd.counters import OwnerTally
from oasis_runtime.pd.memory import RegisteredMemory
from oasis_runtime.pd.owner import Owner
from oasis_runtime.pd.settings import TransferSettings
from oasis_runtime.pd.types import Ended, EndReason, Export, Mode, Pages, Reason, encode_pages
from tests.engine.transfer.actors import DIGEST, FINGERPRINT, PAGE_BYTES, SETTINGS

PAGES: Pages = np.array([[0, 0, 0], [0, 0, 1]], dtype=np.int32)


class Source:
    page_bytes = PAGE_BYTES
    layers = 1
    kv_heads = 1

    def __init__(self) -> None:
        self.while_packing: Callable[[], None] = lambda: None
        self.packed = 0

    def read_pages(
        self, block_ids: NDArray[np.int32], pages: Pages, out: NDArray[np.uint8]
    ) -> None:
        self.packed += len(pages)
        out.reshape(len(pages), -1)[:] = block_ids[pages[:, 2]][:, None]
        self.while_packing()


class Bench:
    """An owner and the agent of one reader, stepped by the test."""

    def __init__(self, settings: TransferSettings) -> None:
        self.now = 0.0
        self.source = Source()
        self.sent: list[protocol.FromOwner] = []
        self.ended: list[Ended] = []
        self.tally = OwnerTally()
        memory = RegisteredMemory(settings.landing_bytes)
        self.owner = Owner(
            settings,
            self.source,
            FINGERPRINT,
            Agent("bench-owner", memory),
            memory,
            lambda _, message: self.sent.append(message),
            self.ended.append,
            self.tally,
            clock=lambda: self.now,
        )
        self.landing = RegisteredMemory(1 << 20)
        self.reader = Agent("bench-reader", self.landing)
        hello = protocol.Hello(FINGERPRINT, PAGE_BYTES, "bench-reader", self.reader.metadata)
        assert isinstance(self.ask(hello), protocol.Welcome)

    def offer(self, request: str, generation: int = 1) -> protocol.Holding:
        blocks = np.array([7, 9], dtype=np.int32)
        self.owner.offer(Export(request, generation, 64, blocks, PAGES, b"blob", DIGEST))
        return protocol.Holding(request, generation)

    def ask(self, message: protocol.FromReader) -> protocol.FromOwner:
        """The owner's answer to ``message``."""
        self.sent.clear()
        self.owner.receive(b"reader", protocol.encode(message))
        deadline = time.monotonic() + 10
        while not self.sent and time.monotonic() < deadline:
            self.owner.step()
            self.reader.progress()
        return self.sent[0]

    def fetch(self, *holdings: protocol.Holding, address: int | None = None) -> Any:
        items: list[protocol.Item] = [
            protocol.PagesItem(holding, encode_pages(PAGES)) for holding in holdings
        ]
        where = self.landing.address if address is None else address
        nbytes = len(items) * len(PAGES) * PAGE_BYTES
        return self.ask(protocol.Fetch(5, Reason.DEMAND, where, nbytes, items))

    def landed_pages(self, count: int) -> list[int]:
        return [int(self.landing.view[i * PAGE_BYTES]) for i in range(count)]


@pytest.fixture
def bench() -> Bench:
    return Bench(SETTINGS)


def test_an_export_whose_lease_ends_while_it_is_packed_is_not_sent(bench: Bench) -> None:
    gone, fresh = bench.offer("gone"), bench.offer("fresh")

    def time_passes() -> None:
        """The lease of one of the two runs out, as if the other had just been renewed."""
        bench.source.while_packing = lambda: None
        bench.now += SETTINGS.lease_seconds
        bench.owner.withdraw("fresh")
        bench.offer("fresh")

    bench.source.while_packing = time_passes
    answer = bench.fetch(gone, fresh)
    assert [(r.index, r.reason) for r in answer.refused] == [
        (0, "the lease of request gone has expired")
    ]
    assert bench.landed_pages(3) == [7, 9, 0]
    assert bench.tally.demand_bytes == len(PAGES) * PAGE_BYTES
    assert bench.tally.refused == 1


def test_nothing_is_written_when_every_item_is_refused(bench: Bench) -> None:
    bench.offer("a", generation=2)
    answer = bench.fetch(protocol.Holding("a", 1), protocol.Holding("b", 1))
    assert [r.index for r in answer.refused] == [0, 1]
    assert bench.source.packed == 0
    assert not bench.owner.under_way()


def test_what_follows_a_refused_item_leaves_no_gap(bench: Bench) -> None:
    answer = bench.fetch(protocol.Holding("nobody", 1), bench.offer("a"))
    assert [r.index for r in answer.refused] == [0]
    assert bench.landed_pages(3) == [7, 9, 0]


def test_an_expired_export_is_reported_once_and_its_renewal_says_unknown(bench: Bench) -> None:
    holding = bench.offer("a", generation=4)
    bench.now += SETTINGS.lease_seconds / 2
    assert bench.ask(protocol.Renew(1, [holding])) == protocol.Renewed(1, [])
    bench.now += SETTINGS.lease_seconds
    assert bench.ask(protocol.Renew(2, [holding])) == protocol.Renewed(2, ["a"])
    bench.owner.step()
    bench.owner.withdraw("a")
    assert bench.ended == [Ended("a", 4, EndReason.EXPIRED)]


def test_memory_that_the_reader_did_not_register_is_refused(bench: Bench) -> None:
    holding = bench.offer("a")
    answer = bench.fetch(holding, address=bench.landing.address + bench.landing.nbytes)
    assert isinstance(answer, protocol.Refused)
    assert "not registered by bench-reader" in answer.reason
    assert isinstance(bench.fetch(holding), protocol.Fetched)


def test_a_fetch_larger_than_the_send_buffer_is_refused_with_the_remedy(bench: Bench) -> None:
    answer = bench.ask(protocol.Fetch(1, Reason.DEMAND, 0, 1 << 40, []))
    assert isinstance(answer, protocol.Refused)
    assert "transfer.landing_bytes" in answer.reason


@pytest.mark.parametrize(("offset", "length"), [(0, 5), (4, 1), (1 << 40, 1)])
def test_a_blob_range_outside_of_the_blob_is_refused(
    bench: Bench, offset: int, length: int
) -> None:
    item = protocol.BlobItem(bench.offer("a"), offset, length)
    answer = bench.ask(protocol.Fetch(1, Reason.ADMISSION, bench.landing.address, 64, [item]))
    assert isinstance(answer, protocol.Fetched)
    assert "outside of the blob of 4 bytes" in answer.refused[0].reason


def test_an_admission_in_mode_all_lists_no_pages(bench: Bench) -> None:
    holding = bench.offer("a")
    hot = bench.ask(protocol.Admit(1, holding, Mode.HOT))
    every = bench.ask(protocol.Admit(2, holding, Mode.ALL))
    assert hot == protocol.Admission(1, 64, 1, 1, 2, 4, encode_pages(PAGES), DIGEST)
    assert every == protocol.Admission(2, 64, 1, 1, 2, 4, b"", DIGEST)


def test_a_silent_reader_is_forgotten_after_a_lease(bench: Bench) -> None:
    bench.now += SETTINGS.lease_seconds + 0.1
    bench.owner.step()
    assert bench.owner.readers == 0
    assert isinstance(bench.ask(protocol.Renew(1, [])), protocol.Unwelcome)
