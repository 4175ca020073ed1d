"""What tests ask an engine, and what they get back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Ask:
    """One request without an end but its length, greedy unless it has a temperature.

    ``after``: engine steps of the same run before it comes; ``abort_after``: output tokens after
    which its client goes away; ``oasis``: the request's own options.
    """

    prompt: Tokens
    tokens: int = 24
    oasis: Mapping[str, Any] | None = field(default=None, compare=False)
    n: int = 1
    temperature: float = 0.0
    seed: int | None = None
    after: int = 0
    abort_after: int | None = None


@dataclass(frozen=True)
class Answer:
    """``outputs``: tokens of each of the n samples; ``cached``: prompt tokens whose KV was there;
    ``finish``: vLLM's reason, of the first sample."""

    outputs: tuple[Tokens, ...]
    cached: int
    finish: str

    @property
    def tokens(self) -> Tokens:
        (tokens,) = self.outputs
        return tokens


@dataclass(frozen=True)
class Held:
    """What an engine without requests still holds; all zero unless something leaked.

    ``requests``: of vLLM's scheduler; ``host_blocks``: of its pool, apart from its null block;
    ``tracked``: requests that the sparse engine knows; ``arriving``: slots with a copy under way.
    """

    requests: int
    host_blocks: int
    tracked: int
    arriving: int
