"""The control channel's messages: a four byte head, then one tagged msgpack map.

The head (``OKV`` and the version) is the same in every version, so that two versions can refuse
each other with a sentence instead of a decoding error. Page lists are packed little-endian int32
triples (:func:`oasis_runtime.pd.types.encode_pages`).
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from oasis_runtime.contract import TRANSFER_PROTOCOL_VERSION
from oasis_runtime.pd.types import Mode, Reason, TransferError

MAGIC = b"OKV"
MAX_MESSAGE_BYTES = 64 << 20
"""Longer messages are refused by the socket; a page list of 5 million pages fits."""

Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Name = Annotated[str, Meta(max_length=512)]
Generation = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Digest = Annotated[bytes, Meta(max_length=64)]


class Message(msgspec.Struct, tag=True, frozen=True, forbid_unknown_fields=True):
    """Base of all messages. ``op`` numbers a reader's question and comes back in the answer."""


class Hello(Message, frozen=True):
    """Reader to owner, first. ``metadata`` describes the reader's NIXL agent and memory."""

    fingerprint: str
    page_bytes: Count
    agent: Name
    metadata: bytes


class Welcome(Message, frozen=True):
    """Owner to reader; ``lease_seconds`` is what the owner grants."""

    agent: Name
    lease_seconds: Annotated[float, Meta(gt=0)]


class Unwelcome(Message, frozen=True):
    """Owner to reader: no message of this reader is taken, and why."""

    reason: str


class Holding(msgspec.Struct, frozen=True, array_like=True):
    """An export that a reader reads."""

    request: Name
    generation: Generation


def check_holding(request: str, generation: int) -> None:
    """Raises ValueError for a request id or a generation that the other side would not take."""
    try:
        msgspec.convert([request, generation], Holding)
    except msgspec.ValidationError as error:
        raise ValueError(f"request id and generation cannot be sent: {error}") from error


class Admit(Message, frozen=True):
    """Opens an export for reading."""

    op: Count
    holding: Holding
    mode: Mode


class Admission(Message, frozen=True):
    """Answer to :class:`Admit`: what there is to fetch. ``pages`` are the pages of the mode hot;
    empty for mode all, where the reader lists all pages itself. ``digest`` is that of the prompt
    (:func:`oasis_runtime.pd.digest.prompt_digest`)."""

    op: Count
    n_tokens: Count
    layers: Count
    kv_heads: Count
    blocks: Count
    blob_bytes: Count
    pages: bytes
    digest: Digest


class Refused(Message, frozen=True):
    """Answer to :class:`Admit` or to a whole :class:`Fetch`."""

    op: Count
    reason: str


class PagesItem(msgspec.Struct, tag="pages", frozen=True, forbid_unknown_fields=True):
    """Pages of one export."""

    holding: Holding
    pages: bytes


class BlobItem(msgspec.Struct, tag="blob", frozen=True, forbid_unknown_fields=True):
    """A range of the blob of one export."""

    holding: Holding
    offset: Count
    length: Count


Item = PagesItem | BlobItem


class Fetch(Message, frozen=True):
    """Asks for ``items``, one after the other, in one WRITE to ``address`` of the reader."""

    op: Count
    reason: Reason
    address: Count
    nbytes: Count
    items: list[Item]


class RefusedItem(msgspec.Struct, frozen=True, array_like=True):
    """An item (by index) that was left out: no gap is left for it."""

    index: Count
    reason: str


class Fetched(Message, frozen=True):
    """The WRITE has been acknowledged. ``wire_us``: microseconds that it had the wire for, from
    its posting or the end of the previous WRITE to this reader."""

    op: Count
    refused: list[RefusedItem]
    wire_us: Count


class Renew(Message, frozen=True):
    """Extends the leases of the reader."""

    op: Count
    holdings: list[Holding]


class Renewed(Message, frozen=True):
    """Answer to :class:`Renew`: the requests whose export is gone."""

    op: Count
    unknown: list[Name]


class Release(Message, frozen=True):
    """The reader needs these exports no more."""

    holdings: list[Holding]


FromReader = Hello | Admit | Fetch | Renew | Release
FromOwner = Welcome | Unwelcome | Admission | Refused | Fetched | Renewed

_encoder = msgspec.msgpack.Encoder()
_from_reader: msgspec.msgpack.Decoder[FromReader] = msgspec.msgpack.Decoder(FromReader)
_from_owner: msgspec.msgpack.Decoder[FromOwner] = msgspec.msgpack.Decoder(FromOwner)


class ProtocolError(TransferError):
    """Bytes that are no message of this protocol."""


class VersionMismatchError(ProtocolError):
    """A peer that speaks another version of the protocol."""

    def __init__(self, theirs: int) -> None:
        self.theirs = theirs
        super().__init__(
            f"the peer speaks version {theirs} of the KV transfer protocol, this engine "
            f"version {TRANSFER_PROTOCOL_VERSION}; run the same release on both sides"
        )


def encode(message: FromReader | FromOwner) -> bytes:
    """Wire bytes of ``message``."""
    return MAGIC + bytes((TRANSFER_PROTOCOL_VERSION,)) + _encoder.encode(message)


def _body(data: bytes) -> memoryview:
    if len(data) < 4 or data[:3] != MAGIC:
        raise ProtocolError("not a message of the KV transfer protocol")
    if data[3] != TRANSFER_PROTOCOL_VERSION:
        raise VersionMismatchError(data[3])
    return memoryview(data)[4:]


def decode_from_reader(data: bytes) -> FromReader:
    """Raises ProtocolError (VersionMismatchError for another version)."""
    try:
        return _from_reader.decode(_body(data))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"malformed message of a reader: {error}") from error


def decode_from_owner(data: bytes) -> FromOwner:
    """Raises ProtocolError (VersionMismatchError for another version)."""
    try:
        return _from_owner.decode(_body(data))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"malformed message of an owner: {error}") from error
