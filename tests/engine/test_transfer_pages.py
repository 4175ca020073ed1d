"""Pages, blobs and leases between two processes over real NIXL on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from oasis_runtime.pd.types import EndReason, Mode, Pages, all_pages
from tests.engine.transfer.actors import (
    BLOCKS,
    FINGERPRINT,
    HEADS,
    LAYERS,
    PAGE_BYTES,
    SETTINGS,
    OwnerActor,
    ReaderActor,
    Remote,
    blob_of,
)


@pytest.fixture(scope="module")
def owner() -> Iterator[Remote]:
    remote = Remote(OwnerActor, SETTINGS, FINGERPRINT)
    yield remote
    remote.call("close")
    remote.end()


@pytest.fixture(scope="module")
def reader() -> Iterator[Remote]:
    remote = Remote(ReaderActor, SETTINGS, FINGERPRINT)
    yield remote
    remote.call("close")
    remote.end()


@pytest.fixture(scope="module")
def port(owner: Remote) -> int:
    return int(owner.call("port"))


def some_pages(count: int, blocks: int, seed: int = 0) -> Pages:
    everything = all_pages(LAYERS, HEADS, blocks)
    picked = np.random.default_rng(seed).permutation(len(everything))[:count]
    return np.ascontiguousarray(everything[picked])


def as_set(pages: Pages) -> set[tuple[Any, ...]]:
    return {tuple(page) for page in pages.tolist()}


def test_a_hot_admission_brings_the_blob_and_the_selected_pages(
    owner: Remote, reader: Remote, port: int
) -> None:
    hot = some_pages(100, 64)
    owner.call("offer", "hot", 7, 64, hot, 100_000)
    reader.call("admit", "hot", port, 7, Mode.HOT)
    read = reader.call("wait", "hot", "admission_done", True, 5.0)
    assert read.n_tokens == 64 * 32
    assert read.blob == blob_of("hot", 100_000)
    assert (read.pages_total, read.wrong) == (100, 0)
    assert set(read.pages) == as_set(hot)
    reader.call("release", "hot")
    owner.call("wait_ended", 1, 5.0)


def test_a_fetch_brings_the_pages_asked_for(owner: Remote, reader: Remote, port: int) -> None:
    owner.call("offer", "cold", 1, BLOCKS, some_pages(0, BLOCKS), 0)
    reader.call("admit", "cold", port, 1, Mode.HOT)
    wanted = some_pages(700, BLOCKS)
    (ticket,) = reader.call("fetch", {"cold": wanted})
    read = reader.call("wait", "cold", "tickets_done", [ticket], 5.0)
    assert read.tickets_done == [ticket]
    assert read.wrong == 0
    assert sorted(read.pages) == sorted(as_set(wanted))
    reader.call("release", "cold")
    owner.call("wait_ended", 1, 5.0)


def test_fetches_of_one_step_for_several_requests_all_arrive(
    owner: Remote, reader: Remote, port: int
) -> None:
    requests = [f"batch-{i}" for i in range(5)]
    for request in requests:
        owner.call("offer", request, 1, BLOCKS, some_pages(0, BLOCKS), 10)
        reader.call("admit", request, port, 1, Mode.HOT)
    for request in requests:
        reader.call("wait", request, "pages_total", 0, 5.0)
    wanted = {r: some_pages(40 + i, BLOCKS, seed=i) for i, r in enumerate(requests)}
    tickets = reader.call("fetch", wanted)
    for request, ticket in zip(requests, tickets, strict=True):
        read = reader.call("wait", request, "tickets_done", [ticket], 5.0)
        assert sorted(read.pages) == sorted(as_set(wanted[request]))
        assert read.wrong == 0
        reader.call("release", request)
    assert len(owner.call("wait_ended", 5, 5.0)) == 5


def test_a_whole_prompt_larger_than_the_landing_buffer_arrives_in_parts(
    owner: Remote, reader: Remote, port: int
) -> None:
    assert SETTINGS.landing_bytes < LAYERS * HEADS * BLOCKS * PAGE_BYTES
    owner.call("offer", "all", 1, BLOCKS, some_pages(0, BLOCKS), 5 << 20)
    reader.call("admit", "all", port, 1, Mode.ALL)
    read = reader.call("wait", "all", "admission_done", True, 10.0)
    assert len(read.pages) == read.pages_total == LAYERS * HEADS * BLOCKS
    assert set(read.pages) == as_set(all_pages(LAYERS, HEADS, BLOCKS))
    assert read.wrong == 0
    assert read.blob == blob_of("all", 5 << 20)
    reader.call("release", "all")
    owner.call("wait_ended", 1, 5.0)
    assert reader.call("wait_landing_free", 2.0) == 0


def test_40_mb_arrive_in_reasonable_time(owner: Remote, reader: Remote, port: int) -> None:
    hot = some_pages((40 << 20) // PAGE_BYTES, BLOCKS)
    seconds = []
    for turn in range(5):
        request = f"large-{turn}"
        owner.call("offer", request, 1, BLOCKS, hot, 0)
        reader.call("admit", request, port, 1, Mode.HOT)
        read = reader.call("wait", request, "admission_done", True, 10.0)
        assert (len(read.pages), read.wrong) == (len(hot), 0)
        seconds.append(read.seconds)
        reader.call("release", request)
        owner.call("wait_ended", 1, 5.0)
    best = min(seconds)
    wire = reader.call("counters").bytes_per_second
    print(f"\n40 MB: {best * 1e3:.1f} ms, all {[round(s * 1e3, 1) for s in seconds]}; wire {wire}")
    assert best < 0.5


def test_both_sides_count_the_same_bytes(owner: Remote, reader: Remote, port: int) -> None:
    before = owner.call("counters"), reader.call("counters")
    owner.call("offer", "bytes", 1, BLOCKS, some_pages(10, BLOCKS), 1000)
    reader.call("admit", "bytes", port, 1, Mode.HOT)
    reader.call("wait", "bytes", "admission_done", True, 5.0)
    (ticket,) = reader.call("fetch", {"bytes": some_pages(3, BLOCKS)})
    reader.call("wait", "bytes", "tickets_done", [ticket], 5.0)
    after = owner.call("counters"), reader.call("counters")
    for old, new in zip(before, after, strict=True):
        assert new.admission_bytes - old.admission_bytes == 10 * PAGE_BYTES + 1000
        assert new.demand_bytes - old.demand_bytes == 3 * PAGE_BYTES
    assert after[1].stale_pages == 0
    reader.call("release", "bytes")
    owner.call("wait_ended", 1, 5.0)


def test_a_release_frees_the_export_at_once(owner: Remote, reader: Remote, port: int) -> None:
    owner.call("offer", "short", 3, 4, some_pages(4, 4), 10)
    reader.call("admit", "short", port, 3, Mode.HOT)
    reader.call("wait", "short", "admission_done", True, 5.0)
    count, age = owner.call("outstanding")
    assert count == 1
    assert age > 0
    reader.call("release", "short")
    (ended,) = owner.call("wait_ended", 1, SETTINGS.lease_seconds / 4)
    assert (ended.request_id, ended.generation, ended.reason) == ("short", 3, EndReason.RELEASED)
    assert owner.call("outstanding") == (0, 0.0)


def test_an_export_that_nobody_reads_expires(owner: Remote) -> None:
    owner.call("offer", "unread", 1, 4, some_pages(4, 4), 10)
    (ended,) = owner.call("wait_ended", 1, SETTINGS.lease_seconds + 1)
    assert ended.reason is EndReason.EXPIRED


def test_heartbeats_keep_an_export_beyond_its_first_lease(
    owner: Remote, reader: Remote, port: int
) -> None:
    owner.call("offer", "kept", 1, 4, some_pages(4, 4), 10)
    reader.call("admit", "kept", port, 1, Mode.HOT)
    assert owner.call("wait_ended", 1, 2 * SETTINGS.lease_seconds) == []
    (ticket,) = reader.call("fetch", {"kept": some_pages(4, 4)})
    read = reader.call("wait", "kept", "tickets_done", [ticket], 5.0)
    assert read.lost is None
    assert read.wrong == 0
    reader.call("release", "kept")
    assert len(owner.call("wait_ended", 1, 5.0)) == 1


def test_a_withdrawn_export_ends_and_its_reader_is_told(
    owner: Remote, reader: Remote, port: int
) -> None:
    owner.call("offer", "withdrawn", 1, 4, some_pages(4, 4), 10)
    reader.call("admit", "withdrawn", port, 1, Mode.HOT)
    reader.call("wait", "withdrawn", "admission_done", True, 5.0)
    owner.call("withdraw", "withdrawn")
    (ended,) = owner.call("wait_ended", 1, 1.0)
    assert ended.reason is EndReason.WITHDRAWN
    read = reader.call("wait", "withdrawn", "lost", None, 5.0)
    assert "lease has ended" in read.lost


def test_another_generation_is_refused_and_sends_nothing(
    owner: Remote, reader: Remote, port: int
) -> None:
    owner.call("offer", "reused", 2, 4, some_pages(4, 4), 10)
    sent = owner.call("counters").admission_bytes
    reader.call("admit", "reused", port, 1, Mode.HOT)
    read = reader.call("wait", "reused", "lost", None, 5.0)
    assert "generation 2, not 1" in read.lost
    assert owner.call("counters").admission_bytes == sent
    owner.call("withdraw", "reused")
    owner.call("wait_ended", 1, 5.0)


def test_an_admission_may_come_before_its_export(owner: Remote, reader: Remote, port: int) -> None:
    reader.call("admit", "early", port, 1, Mode.HOT)
    owner.call("offer", "early", 1, 4, some_pages(4, 4), 10)
    read = reader.call("wait", "early", "admission_done", True, 5.0)
    assert (read.lost, len(read.pages)) == (None, 4)
    reader.call("release", "early")
    owner.call("wait_ended", 1, 5.0)


def test_an_unknown_export_is_refused_after_the_grace(reader: Remote, port: int) -> None:
    reader.call("admit", "nobody", port, 1, Mode.HOT)
    read = reader.call("wait", "nobody", "lost", None, 5.0)
    assert "no export of request nobody" in read.lost
    assert read.lost_after < SETTINGS.offer_grace_seconds + 1


def test_a_page_outside_of_the_export_is_refused(owner: Remote, reader: Remote, port: int) -> None:
    owner.call("offer", "bounds", 1, 4, some_pages(1, 4), 10)
    reader.call("admit", "bounds", port, 1, Mode.HOT)
    reader.call("wait", "bounds", "admission_done", True, 5.0)
    reader.call("fetch", {"bounds": np.array([[0, 0, 4]], dtype=np.int32)})
    read = reader.call("wait", "bounds", "lost", None, 5.0)
    assert "outside of 8 layers, 2 KV heads and 4 blocks" in read.lost
    owner.call("withdraw", "bounds")
    owner.call("wait_ended", 1, 5.0)


def test_fetches_wait_for_landing_memory_and_then_arrive(
    owner: Remote, reader: Remote, port: int
) -> None:
    owner.call("offer", "full", 1, BLOCKS, some_pages(0, BLOCKS), 10)
    reader.call("admit", "full", port, 1, Mode.HOT)
    reader.call("wait", "full", "pages_total", 0, 5.0)
    reader.call("keep", True)
    wanted = some_pages(3000, BLOCKS)
    (ticket,) = reader.call("fetch", {"full": wanted})
    fits = SETTINGS.landing_bytes // PAGE_BYTES
    assert reader.call("wait_pages", "full", fits, 5.0) == fits
    assert reader.call("wait_pages", "full", fits + 1, 0.2) == fits
    reader.call("keep", False)
    read = reader.call("wait", "full", "tickets_done", [ticket], 5.0)
    assert (len(read.pages), read.wrong) == (3000, 0)
    reader.call("release", "full")
    owner.call("wait_ended", 1, 5.0)
    assert reader.call("wait_landing_free", 2.0) == 0


def test_idle_engines_leave_the_cores_alone(owner: Remote, reader: Remote, port: int) -> None:
    owner.call("offer", "idle", 1, 4, some_pages(4, 4), 10)
    reader.call("admit", "idle", port, 1, Mode.HOT)
    reader.call("wait", "idle", "admission_done", True, 5.0)
    burnt = {"owner": owner.call("idle_cpu", 3.0), "reader": reader.call("idle_cpu", 3.0)}
    print(f"\nidle: {burnt}")
    assert max(burnt.values()) < 0.1
    reader.call("release", "idle")
    owner.call("wait_ended", 1, 5.0)


def test_polling_an_idle_importer_is_cheap(reader: Remote) -> None:
    cost = min(reader.call("poll_microseconds", 2000) for _ in range(5))
    print(f"\npoll: {cost:.2f} us")
    assert cost < 20
