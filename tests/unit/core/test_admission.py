"""What a prefill engine sends: it comes back as it was, and anything else is refused."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oasis_runtime.core.admission import Admission, hot_pages
from oasis_runtime.core.bfloat16 import round_up
from oasis_runtime.core.requests import Selection
from tests.unit.core.world import World

SLOW = (HealthCheck.too_slow,)
"""A machine that is busy with something else is no failure."""


def admission(seed: int, layers: int, heads: int, blocks: int, most: int, dim: int) -> Admission:
    rng = np.random.default_rng(seed)
    chosen = np.sort(
        np.stack([rng.permutation(blocks + most)[:most] for _ in range(layers * heads)]).reshape(
            layers, heads, most
        ),
        axis=2,
    )
    shape = (layers, blocks, heads)
    return Admission(
        Selection(
            chosen.astype(np.int32),
            rng.integers(0, most + 1, (layers, heads)).astype(np.int32),
            window=int(rng.integers(0, blocks + 1)),
            length=int(rng.integers(1, 1 << 20)),
        ),
        rng.integers(-127, 128, (*shape, dim)).astype(np.int8),
        rng.integers(-127, 128, (*shape, dim)).astype(np.int8),
        round_up(rng.random(shape, np.float32)),
    )


SHAPES = st.builds(
    admission,
    seed=st.integers(0, 2**32 - 1),
    layers=st.integers(1, 3),
    heads=st.integers(1, 4),
    blocks=st.integers(1, 9),
    most=st.integers(0, 5),
    dim=st.sampled_from((8, 64)),
)


@given(SHAPES)
@settings(deadline=None, suppress_health_check=SLOW)
def test_it_comes_back_as_it_was(sent: Admission) -> None:
    got = Admission.decode(sent.encode())
    for name in ("low", "high", "scale"):
        np.testing.assert_array_equal(getattr(got, name), getattr(sent, name))
    np.testing.assert_array_equal(got.selection.count, sent.selection.count)
    used = np.arange(sent.selection.blocks.shape[2]) < sent.selection.count[:, :, None]
    most = got.selection.blocks.shape[2]
    np.testing.assert_array_equal(
        got.selection.blocks[used[:, :, :most]], sent.selection.blocks[used]
    )
    assert (got.selection.window, got.selection.length) == (
        sent.selection.window,
        sent.selection.length,
    )


def test_columns_that_no_head_uses_are_not_sent() -> None:
    sent = admission(0, 2, 2, 4, 5, 8)
    sent.selection.count[:] = 1
    assert Admission.decode(sent.encode()).selection.blocks.shape == (2, 2, 1)


GOOD = admission(1, 2, 2, 3, 4, 8).encode()
HEADER, BODY = GOOD.split(b"\n", 1)


def refused(data: bytes) -> None:
    """Either it decodes, or it is refused with ValueError; anything else fails the test."""
    with contextlib.suppress(ValueError):
        Admission.decode(data)


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None, suppress_health_check=SLOW)
def test_any_bytes_are_refused_with_a_value_error(data: bytes) -> None:
    refused(data)
    with pytest.raises(ValueError, match="admission"):
        Admission.decode(b"\xff" + data)


@given(st.integers(0, len(GOOD) - 1), st.binary(max_size=4), st.integers(0, 4))
@settings(max_examples=300, deadline=None, suppress_health_check=SLOW)
def test_damaged_bytes_are_refused_with_a_value_error(at: int, new: bytes, removed: int) -> None:
    refused(GOOD[:at] + new + GOOD[at + removed :])


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.sampled_from((-1, 0, 1 << 31, 1 << 63)),
)


@given(st.dictionaries(st.sampled_from(sorted(json.loads(HEADER))), JUNK, min_size=1))
@settings(max_examples=400, deadline=None, suppress_health_check=SLOW)
def test_any_value_in_the_header_is_refused_with_a_value_error(change: dict[str, object]) -> None:
    header = json.loads(HEADER) | change
    refused(json.dumps(header).encode() + b"\n" + BODY)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "fields of this version"),
        (b'{"window": 1}', "fields of this version"),
        (HEADER.replace(b'"blocks": 3', b'"blocks": "3"'), "blocks .* whole number"),
        (HEADER.replace(b'"blocks": 3', b'"blocks": -3'), "blocks .* whole number"),
        (HEADER.replace(b'"blocks": 3', b'"blocks": 4'), "bytes of arrays"),
        (HEADER.replace(b'"blocks": 3', b'"blocks": true'), "blocks .* whole number"),
        (HEADER.replace(b'"heads": 2', b'"heads": 0'), "heads .* whole number"),
    ],
)
def test_a_bad_header_says_what_is_wrong(header: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Admission.decode(header + b"\n" + BODY)


def test_bounds_that_are_no_numbers_are_refused() -> None:
    sent = admission(1, 2, 2, 3, 4, 8)
    sent.scale[1, 1, 1] = 0x7FC0  # not a number
    with pytest.raises(ValueError, match="scale"):
        Admission.decode(sent.encode())


def test_summaries_of_another_model_are_not_installed() -> None:
    world = World(40)
    sent = Admission.decode(admission(1, 2, 2, 3, 4, dim=64).encode())
    with pytest.raises(ValueError, match="this engine needs"):
        sent.install(world.tables, np.array([1, 2, 3], np.int32))
    world.close()


def test_summaries_are_installed_at_the_receivers_blocks() -> None:
    sender, receiver = World(100), World(100)
    r = sender.admit("r", 130)
    sender.prefill(r)
    selection = sender.engine.requests.selection_of("r")
    assert selection is not None
    theirs, ours = np.array(r.blocks, np.int32), np.arange(3, 12, dtype=np.int32)
    Admission.decode(Admission.of(sender.tables, theirs, selection).encode()).install(
        receiver.tables, ours
    )
    for name in ("low", "high", "scale"):
        np.testing.assert_array_equal(
            getattr(receiver.tables, name)[:, ours], getattr(sender.tables, name)[:, theirs]
        )
    sender.close()
    receiver.close()


def test_hot_pages_are_sinks_selection_and_window_each_once() -> None:
    blocks = np.array([[[2, 4, 9]], [[0, 3, 5]]], np.int32)
    selection = Selection(blocks, np.array([[2], [3]], np.int32), window=6, length=120)
    assert hot_pages(selection, 2, 8).tolist() == [
        *([0, 0, b] for b in (0, 1, 2, 4, 6, 7)),
        *([1, 0, b] for b in (0, 1, 3, 5, 6, 7)),
    ]


@given(st.integers(0, 6), st.integers(0, 9), st.integers(1, 9))
@settings(deadline=None, suppress_health_check=SLOW)
def test_hot_pages_lie_within_the_request(sinks: int, window: int, blocks: int) -> None:
    nothing = Selection(np.empty((1, 2, 0), np.int32), np.zeros((1, 2), np.int32), window, 1)
    pages = hot_pages(nothing, sinks, blocks)
    local = {*range(min(sinks, blocks)), *range(min(max(window, sinks), blocks), blocks)}
    assert {tuple(p) for p in pages.tolist()} == {(0, h, b) for h in (0, 1) for b in local}
