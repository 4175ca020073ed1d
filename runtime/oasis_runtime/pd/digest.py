"""What an export's KV was computed from, in a few bytes that both sides can compare."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import msgspec

DIGEST_BYTES = 16


def prompt_digest(token_ids: Sequence[int], others: Sequence[object] = ()) -> bytes:
    """Equal for two prompts whose KV is the same: uint8[DIGEST_BYTES].

    ``others``: what decides the KV besides the tokens (adapter, images, salt), made of strings,
    bytes, numbers and tuples of these. 32,768 tokens take well under a millisecond.
    """
    digest = blake2b(msgspec.msgpack.encode(token_ids), digest_size=DIGEST_BYTES)
    # Not as msgpack: a client's string may hold what UTF-8 cannot say.
    digest.update(ascii(tuple(others)).encode())
    return digest.digest()
