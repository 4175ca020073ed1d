"""One sentence out of one pydantic error."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

Location = tuple[int | str, ...]

_SHOWN = 60
"""Longest piece of a wrong value that a sentence repeats, in characters."""
_SHOWN_NAME = 100


def shown_name(name: str) -> str:
    """A name from a text that may hold anything, short and on one line."""
    short = name if len(name) <= _SHOWN_NAME else name[:_SHOWN_NAME] + "..."
    return short if short.isprintable() else ascii(short)[1:-1]


def dotted(location: Location) -> str:
    """``("transfer", "ports", 0)`` as ``transfer.ports[0]``."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = shown_name(part)
            text += f".{name}" if text else name
    return text


def sentence(error: ErrorDetails, model: type[BaseModel], prefix: Location = ()) -> str:
    """What is wrong with the value at ``prefix`` + the error's location, and what to do.

    ``model`` is the type that was validated; it knows the keys that would have been right.
    """
    name = dotted((*prefix, *error["loc"]))
    kind, message = error["type"], error["msg"]
    if kind == "missing":
        return f"{name} is missing; set it"
    if kind == "extra_forbidden":
        return f"{name} is not a setting; {_valid_keys(error, model)}"
    if kind == "value_error":
        reason = message.removeprefix("Value error, ")
        # Validators that look at several fields name them themselves.
        return reason if not name or name.split(".")[0] in reason else f"{name}: {reason}"
    for opening in (
        "Input should be ",
        "String should have ",
        "Tuple should have ",
        "List should ",
    ):
        if message.startswith(opening):
            verb = {"Input should be ": "be", "List should ": ""}.get(opening, "have")
            rest = " ".join(f"must {verb} {message[len(opening) :]}".split())
            return f"{name or 'the value'} {rest}, not {_shown(error['input'])}"
    return f"{name or 'the value'}: {message[:1].lower()}{message[1:]}"


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    text = reprlib.repr(value) if isinstance(value, list | tuple) else repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _valid_keys(error: ErrorDetails, model: type[BaseModel]) -> str:
    fields = _fields_at(model, error["loc"][:-1])
    close = difflib.get_close_matches(shown_name(str(error["loc"][-1])), fields, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"the settings here are {', '.join(fields)}"


def _fields_at(model: type[BaseModel], location: Location) -> list[str]:
    for part in location:
        annotation: Any = model.model_fields[str(part)].annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            model = annotation
    return list(model.model_fields)
