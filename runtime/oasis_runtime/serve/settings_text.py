"""The YAML of ``engine.yaml`` and of ``--set``: words, numbers, lists and mappings, no more.

PyYAML's own loader makes dates of words and keeps the last of two equal keys; and some texts it
answers with exceptions that are none of YAML's.
"""

from __future__ import annotations

from typing import Any

import yaml
from yaml.constructor import SafeConstructor
from yaml.reader import ReaderError

from oasis_runtime.serve.sentences import shown_name

_STANDARD = "tag:yaml.org,2002:"
_WORDS = frozenset(_STANDARD + name for name in ("str", "timestamp", "value", "merge"))
_TOO_DEEP = "is nested too deeply; settings are at most three deep"
_LONGEST_NUMBER = 100
"""Characters; Python itself refuses to write numbers of more than 4300 digits."""


class TextError(Exception):
    """The text cannot be read; the message says why in words that continue a sentence."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line
        """From 1; None where the whole text is meant."""


class _Loader(yaml.SafeLoader):
    """Composes without aliases: a few lines of them stand for more values than memory holds."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            # An untyped function of a typed package.
            event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
            raise TextError(
                "an alias (*) is not supported here; write the value again",
                None if event.start_mark is None else event.start_mark.line + 1,
            )
        node: yaml.Node | None = super().compose_node(parent, index)
        return node


def compose(text: str) -> yaml.Node | None:
    """The tree of the text, None where it is empty. Raises TextError."""
    try:
        return yaml.compose(text, Loader=_Loader)
    except ReaderError as error:
        raise TextError(f"has the character #x{error.character:04x}, which YAML forbids") from None
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        raise TextError(f"not valid YAML ({error.problem}); fix the syntax there", line) from None
    except RecursionError:
        raise TextError(_TOO_DEEP) from None
    except (yaml.YAMLError, ValueError, OverflowError):
        # An escape that is no character, a version that is no number.
        raise TextError("is not valid YAML; fix the syntax") from None


def value_of(node: yaml.Node | None) -> Any:
    """The value that a tree stands for; keys are strings as they are written. Raises TextError."""
    try:
        return _value(node)
    except RecursionError:
        raise TextError(_TOO_DEEP) from None


def _value(node: yaml.Node | None) -> Any:
    match node:
        case yaml.MappingNode():
            return _mapping(node)
        case yaml.SequenceNode():
            return [_value(item) for item in node.value]
        case yaml.ScalarNode():
            return _scalar(node)
    return None


def _mapping(node: yaml.MappingNode) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise TextError("a key must be a word", _line(key))
        name = _word(key)
        if name in result:
            raise TextError(f"{shown_name(name)} is set a second time; keep one", _line(key))
        result[name] = _value(value)
    return result


def _scalar(node: yaml.ScalarNode) -> Any:
    text = _word(node)
    if node.tag in _WORDS:
        return text
    kind = node.tag.removeprefix(_STANDARD)
    try:
        match kind:
            case "null":
                return None
            case "bool":
                return SafeConstructor.bool_values[text.lower()]
            case "int" if len(text) <= _LONGEST_NUMBER:
                return SafeConstructor().construct_yaml_int(node)
            case "float" if len(text) <= _LONGEST_NUMBER:
                return SafeConstructor().construct_yaml_float(node)
    except (ValueError, KeyError, IndexError):
        pass
    if kind in ("int", "float", "bool"):
        raise TextError(f"{shown_name(text)} cannot be read as {kind}", _line(node))
    raise TextError(f"the tag {shown_name(kind)} is not supported here", _line(node))


def _word(node: yaml.ScalarNode) -> str:
    text: str = node.value
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise TextError("half of a surrogate pair is no character", _line(node))
    return text


def _line(node: yaml.Node) -> int:
    line: int = node.start_mark.line
    return line + 1
