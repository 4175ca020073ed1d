"""Prompts of any length out of English prose that every Python brings along."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

from tokenizers import Tokenizer

from tests.engine.inprocess.asks import Tokens

_CHARACTERS = 200_000


@dataclass(frozen=True)
class Prose:
    """One long text in the tokens of the model under test."""

    tokens: Tokens

    @staticmethod
    def of(model: Path) -> Prose:
        text = "\n\n".join(topics[name] for name in sorted(topics))[:_CHARACTERS]
        tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        return Prose(tuple(tokenizer.encode(text, add_special_tokens=False).ids))

    def passage(self, number: int, length: int) -> Tokens:
        """``length`` tokens; passages of other numbers begin elsewhere, so no prefix is common."""
        start = number * 500
        assert start + length <= len(self.tokens)
        return self.tokens[start : start + length]
