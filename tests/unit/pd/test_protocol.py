from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasis_runtime.contract import TRANSFER_PROTOCOL_VERSION
from oasis_runtime.pd import protocol
from oasis_runtime.pd.types import Mode, Reason

counts = st.integers(0, (1 << 63) - 1)
names = st.text(max_size=60)
holdings = st.builds(protocol.Holding, names, counts)
items = st.one_of(
    st.builds(protocol.PagesItem, holdings, st.binary(max_size=120)),
    st.builds(protocol.BlobItem, holdings, counts, counts),
)
from_reader = st.one_of(
    st.builds(protocol.Hello, st.text(), counts, names, st.binary(max_size=300)),
    st.builds(protocol.Admit, counts, holdings, st.sampled_from(Mode)),
    st.builds(
        protocol.Fetch, counts, st.sampled_from(Reason), counts, counts, st.lists(items, max_size=5)
    ),
    st.builds(protocol.Renew, counts, st.lists(holdings, max_size=5)),
    st.builds(protocol.Release, st.lists(holdings, max_size=5)),
)
refused_items = st.builds(protocol.RefusedItem, counts, st.text())
from_owner = st.one_of(
    st.builds(protocol.Welcome, names, st.floats(0.001, 1e6)),
    st.builds(protocol.Unwelcome, st.text()),
    st.builds(
        protocol.Admission,
        *(counts,) * 6,
        st.binary(max_size=120),
        st.binary(max_size=64),
    ),
    st.builds(protocol.Refused, counts, st.text()),
    st.builds(protocol.Fetched, counts, st.lists(refused_items, max_size=4), counts),
    st.builds(protocol.Renewed, counts, st.lists(names, max_size=5)),
)


@given(from_reader)
def test_a_readers_message_arrives_as_it_was_sent(message: protocol.FromReader) -> None:
    assert protocol.decode_from_reader(protocol.encode(message)) == message


@given(from_owner)
def test_an_owners_message_arrives_as_it_was_sent(message: protocol.FromOwner) -> None:
    assert protocol.decode_from_owner(protocol.encode(message)) == message


def refused_or_read(data: bytes) -> None:
    for decode in (protocol.decode_from_reader, protocol.decode_from_owner):
        try:
            decode(data)
        except protocol.ProtocolError:
            continue


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_protocol_error(data: bytes) -> None:
    refused_or_read(data)
    refused_or_read(protocol.MAGIC + bytes((TRANSFER_PROTOCOL_VERSION,)) + data)


@given(st.one_of(from_reader, from_owner), st.data())
def test_a_damaged_message_is_a_message_or_a_protocol_error(
    message: protocol.FromReader | protocol.FromOwner, data: st.DataObject
) -> None:
    wire = bytearray(protocol.encode(message))
    position = data.draw(st.integers(0, len(wire) - 1))
    wire[position] = data.draw(st.integers(0, 255))
    refused_or_read(bytes(wire))
    refused_or_read(bytes(wire[:position]))


def test_the_sides_do_not_take_each_others_messages() -> None:
    with pytest.raises(protocol.ProtocolError):
        protocol.decode_from_owner(protocol.encode(protocol.Renew(1, [])))
    with pytest.raises(protocol.ProtocolError):
        protocol.decode_from_reader(protocol.encode(protocol.Renewed(1, [])))


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(protocol.ProtocolError, match="op"):
        protocol.decode_from_reader(protocol.encode(protocol.Renew(-1, [])))


@given(st.integers(0, 255).filter(lambda v: v != TRANSFER_PROTOCOL_VERSION), st.binary(max_size=50))
def test_another_version_is_named_whatever_follows(version: int, body: bytes) -> None:
    with pytest.raises(protocol.VersionMismatchError) as caught:
        protocol.decode_from_reader(protocol.MAGIC + bytes((version,)) + body)
    assert f"version {version} " in str(caught.value)
    assert f"version {TRANSFER_PROTOCOL_VERSION};" in str(caught.value)


@pytest.mark.parametrize(("request_id", "generation"), [("x" * 513, 1), ("a", -1), ("a", 1 << 63)])
def test_a_holding_that_the_other_side_would_drop_is_caught_before(
    request_id: str, generation: int
) -> None:
    with pytest.raises(ValueError, match="cannot be sent"):
        protocol.check_holding(request_id, generation)
