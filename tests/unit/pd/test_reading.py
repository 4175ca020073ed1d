from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from oasis_runtime.pd import protocol
from oasis_runtime.pd.landing import Region
from oasis_runtime.pd.piece_queue import PieceQueue
from oasis_runtime.pd.reading import Reading, ReadingState, check_size, page_pieces
from oasis_runtime.pd.types import Admitted, Landed, Mode, Reason


def reading(name: str = "a") -> Reading:
    return Reading(name, protocol.Holding(name, 1), b"", Mode.HOT)


def admission(blob_bytes: int) -> protocol.Admission:
    return protocol.Admission(1, 100, 1, 1, 4, blob_bytes, b"", b"")


ONE = np.zeros((1, 3), dtype=np.int32)
DATA = np.zeros((1, 8), dtype=np.uint8)


def nothing() -> None:
    """A claim that nobody checks."""


@pytest.mark.parametrize(
    ("layers", "kv_heads", "blocks", "blob_bytes"),
    [(1 << 62, 1, 1, 0), (1, 1 << 62, 1, 0), (1, 1, 1 << 62, 0), (1, 1, 1, 1 << 62), (5, 2, 2, 0)],
)
def test_more_than_the_host_tier_holds_is_refused_before_anything_is_allocated(
    layers: int, kv_heads: int, blocks: int, blob_bytes: int
) -> None:
    announced = protocol.Admission(1, 100, layers, kv_heads, blocks, blob_bytes, b"", b"")
    with pytest.raises(ValueError, match="the host tier here holds 19 pages of 64 bytes"):
        check_size(announced, 19, 64)


def test_what_the_host_tier_holds_may_be_announced() -> None:
    check_size(protocol.Admission(1, 100, 5, 2, 2, 20 * 64, b"", b""), 20, 64)


def test_an_admission_without_a_blob_is_told_at_once() -> None:
    assert reading().open(admission(0), 3) == [Admitted("a", 100, b"", 3)]


def test_the_blob_is_put_together_from_parts_in_any_order() -> None:
    one = reading()
    assert one.open(admission(6), 0) == []
    tail = protocol.BlobItem(one.holding, 4, 2)
    head = protocol.BlobItem(one.holding, 0, 4)
    assert one.take_blob(tail, np.frombuffer(b"ef", dtype=np.uint8)) == []
    events = one.take_blob(head, np.frombuffer(b"abcd", dtype=np.uint8))
    assert events == [Admitted("a", 100, b"abcdef", 0)]


def test_pages_that_overtake_the_blob_come_after_it() -> None:
    one = reading()
    one.open(admission(2), 2)
    assert one.take_pages(Reason.ADMISSION, 0, ONE, DATA, False, nothing) == []
    item = protocol.BlobItem(one.holding, 0, 2)
    first, second = one.take_blob(item, np.frombuffer(b"xy", dtype=np.uint8))
    assert isinstance(first, Admitted)
    assert isinstance(second, Landed)
    (third,) = one.take_pages(Reason.ADMISSION, 0, ONE, DATA, False, nothing)
    assert isinstance(third, Landed)
    assert (second.last, third.last) == (False, True)


def test_what_was_held_back_is_given_back_at_the_end() -> None:
    one = reading()
    one.open(admission(2), 1)
    given_back: list[int] = []
    one.take_pages(Reason.ADMISSION, 0, ONE, DATA, False, lambda: given_back.append(1))
    one.end(ReadingState.RELEASED)
    assert given_back == [1]
    assert not one.alive


@pytest.fixture
def taken() -> list[int]:
    return []


@pytest.fixture
def queue(taken: list[int]) -> PieceQueue:
    return PieceQueue(80, lambda: taken.append(1))


def fits() -> Callable[[int], Region]:
    return lambda nbytes: Region(0, nbytes)


def test_fetches_of_several_requests_share_a_write(queue: PieceQueue, taken: list[int]) -> None:
    for ticket, name in enumerate("abc", start=1):
        queue.extend(page_pieces(reading(name), np.repeat(ONE, 4, axis=0), 8, 80, ticket, 0.0))
    first = queue.take(fits())
    assert first is not None
    region, batch = first
    assert [piece.reading.request_id for piece in batch] == ["a", "b"]
    assert region.nbytes == 2 * 4 * 8
    second = queue.take(fits())
    assert second is not None
    assert [piece.reading.request_id for piece in second[1]] == ["c"]
    assert len(taken) == 3


def test_pieces_of_requests_that_ended_take_no_room(queue: PieceQueue, taken: list[int]) -> None:
    ended, alive = reading("ended"), reading("alive")
    for one in (ended, alive, ended):
        queue.extend(page_pieces(one, np.repeat(ONE, 10, axis=0), 8, 80, 1, 0.0))
    ended.end(ReadingState.LOST)
    first = queue.take(fits())
    assert first is not None
    region, batch = first
    assert ([piece.reading for piece in batch], region.nbytes) == ([alive], 80)
    assert queue.take(fits()) is None
    assert len(taken) == 3


def test_without_landing_memory_all_stays_in_the_queue(queue: PieceQueue, taken: list[int]) -> None:
    queue.extend(page_pieces(reading(), ONE, 8, 80, 1, 0.0))
    assert queue.take(lambda _: None) is None
    assert (len(queue), taken) == (1, [])


def test_pieces_that_waited_too_long_are_taken_out(queue: PieceQueue) -> None:
    for queued in (1.0, 2.0, 3.0):
        queue.extend(page_pieces(reading(), ONE, 8, 80, 1, queued))
    assert [piece.queued for piece in queue.overdue(2.0)] == [1.0, 2.0]
    assert len(queue) == 1
