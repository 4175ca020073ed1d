"""Answers of stock vLLM, each computed once, beside the engine under test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.engine.inprocess.asks import Answer, Ask, Tokens
from tests.engine.inprocess.child import Setup
from tests.engine.inprocess.engine import EngineProcess


@dataclass(frozen=True)
class Expected:
    """Answers that stock vLLM is working on, or has given."""

    stock: Stock
    asks: Sequence[Ask]

    @property
    def outputs(self) -> list[tuple[Tokens, ...]]:
        """Of each ask its samples; waits for them."""
        return [self.stock.known(ask).outputs for ask in self.asks]

    @property
    def tokens(self) -> list[Tokens]:
        return [tokens for (tokens,) in self.outputs]


class Stock:
    """Computes in its own process while the test goes on."""

    def __init__(self, setup: Setup) -> None:
        self._process = EngineProcess(setup)
        self._known: dict[Ask, Answer] = {}
        self._asked: list[Ask] = []

    def ask(self, *asks: Ask) -> Expected:
        """Returns at once, unless another answer is still to come."""
        plain = [replace(ask, oasis=None, after=0, abort_after=None) for ask in asks]
        new = [ask for ask in dict.fromkeys(plain) if ask not in self._known]
        if new:
            self._collect()
            self._process.begin(*new)
            self._asked = new
        return Expected(self, plain)

    def known(self, ask: Ask) -> Answer:
        if ask not in self._known:
            self._collect()
        return self._known[ask]

    def _collect(self) -> None:
        if self._asked:
            answers = self._process.answers()
            self._known.update(zip(self._asked, answers, strict=True))
            self._asked = []

    def close(self) -> None:
        self._process.close()
