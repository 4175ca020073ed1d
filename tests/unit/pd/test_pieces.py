from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasis_runtime.pd import protocol
from oasis_runtime.pd.reading import Reading, admission_pages, blob_pieces, page_pieces
from oasis_runtime.pd.types import Mode, all_pages, decode_pages, encode_pages


def reading() -> Reading:
    return Reading("local", protocol.Holding("remote", 3), b"", Mode.HOT)


@given(st.integers(1, 200), st.integers(1, 64), st.integers(1, 1000))
def test_page_pieces_are_the_pages_in_order_within_the_chunk(
    count: int, page_bytes: int, chunk: int
) -> None:
    pages = np.arange(3 * count, dtype=np.int32).reshape(-1, 3)
    pieces = list(page_pieces(reading(), pages, page_bytes, chunk, 9, 0.0))
    sent = []
    for piece in pieces:
        assert isinstance(piece.item, protocol.PagesItem)
        assert piece.item.holding == protocol.Holding("remote", 3)
        assert piece.nbytes <= max(chunk, page_bytes)
        sent.append(decode_pages(piece.item.pages))
        assert piece.nbytes == len(sent[-1]) * page_bytes
    assert np.array_equal(np.concatenate(sent), pages)
    assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]


@given(st.integers(0, 5000), st.integers(1, 1000))
def test_blob_pieces_cover_the_blob_once(blob_bytes: int, chunk: int) -> None:
    covered = 0
    for piece in blob_pieces(reading(), blob_bytes, chunk, 0.0):
        assert isinstance(piece.item, protocol.BlobItem)
        assert piece.item.offset == covered
        assert 0 < piece.item.length == piece.nbytes <= chunk
        covered += piece.nbytes
    assert covered == blob_bytes


def test_a_hot_admission_brings_the_owners_pages_a_full_one_every_page() -> None:
    hot = np.array([[1, 0, 5], [0, 1, 2]], dtype=np.int32)
    answer = protocol.Admission(1, 200, 2, 2, 6, 0, encode_pages(hot), b"")
    assert np.array_equal(admission_pages(Mode.HOT, answer), hot)
    every = admission_pages(Mode.ALL, answer)
    assert len({tuple(page) for page in every.tolist()}) == len(every) == 2 * 2 * 6
    assert every.max(axis=0).tolist() == [1, 1, 5]


def test_all_pages_go_layer_by_layer() -> None:
    assert all_pages(2, 1, 2).tolist() == [[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 1]]


def test_pages_need_three_columns() -> None:
    with pytest.raises(ValueError, match="shape"):
        encode_pages(np.zeros((2, 2), dtype=np.int32))


def test_a_partial_row_is_an_error() -> None:
    with pytest.raises(ValueError, match="multiple of 12"):
        decode_pages(b"12345")
