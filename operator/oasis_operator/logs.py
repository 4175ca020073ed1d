"""Logging: lines of text or JSON, each record with the OasisDeployment that it is about."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, TextIO

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

from oasis_operator.cluster.queue import Key

LogFormat = Literal["text", "json"]

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(prefix)s%(message)s"
_JSON = ("levelname", "name", "message", "oasisdeployment")
_RENAMED = {"levelname": "level", "name": "logger"}

_about: ContextVar[str] = ContextVar("about", default="")


@contextmanager
def about(key: Key) -> Iterator[None]:
    """What this task logs is about ``key`` while the context is open."""
    token = _about.set(f"{key.namespace}/{key.name}")
    try:
        yield
    finally:
        _about.reset(token)


def configure(level: str, form: LogFormat, stream: TextIO | None = None) -> None:
    """Sets up the root logger in the place of what it had.

    Args:
        level: as ``logging`` names them.
        form: ``text`` has the key in front of the message, ``json`` as field ``oasisdeployment``.
        stream: where to; standard error unless given.
    """
    handler = logging.StreamHandler(stream)
    handler.addFilter(_with_key)
    handler.setFormatter(_json() if form == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=level, handlers=[handler], force=True)


def _with_key(record: logging.LogRecord) -> bool:
    key = _about.get()
    record.oasisdeployment = key
    record.prefix = f"{key}: " if key else ""
    return True


def _json() -> JsonFormatter:
    return JsonFormatter(
        _JSON,
        rename_fields=_RENAMED,
        timestamp="time",
        reserved_attrs=[*RESERVED_ATTRS, "prefix"],
    )
