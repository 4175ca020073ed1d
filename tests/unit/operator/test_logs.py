from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from oasis_operator.cluster.queue import Key
from oasis_operator.logs import LogFormat, about, configure

CHAT = Key("team", "chat")
log = logging.getLogger("oasis_operator.test")


@pytest.fixture(autouse=True)
def root() -> Iterator[None]:
    """The root logger as it was."""
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    yield
    logger.handlers[:], logger.level = handlers, level


def written(form: LogFormat) -> io.StringIO:
    stream = io.StringIO()
    configure("INFO", form, stream)
    return stream


def records(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_of_text_begins_with_the_key() -> None:
    stream = written("text")
    with about(CHAT):
        log.info("applied %s", "Deployment chat-router")
    assert stream.getvalue().endswith(
        "oasis_operator.test: team/chat: applied Deployment chat-router\n"
    )


def test_what_is_about_nothing_has_no_key() -> None:
    stream = written("text")
    log.info("leading")
    assert stream.getvalue().endswith("oasis_operator.test: leading\n")


def test_json_has_time_level_logger_message_and_key() -> None:
    stream = written("json")
    with about(CHAT):
        log.warning("refused: %s", "no")
    (record,) = records(stream)
    assert record.pop("time")
    assert record == {
        "level": "WARNING",
        "logger": "oasis_operator.test",
        "message": "refused: no",
        "oasisdeployment": "team/chat",
    }


def test_a_traceback_is_one_json_object() -> None:
    stream = written("json")
    try:
        raise RuntimeError("two\nlines")
    except RuntimeError:
        log.exception("reconcile failed")
    (record,) = records(stream)
    assert "RuntimeError" in record["exc_info"]


def test_what_is_under_the_level_is_not_written() -> None:
    stream = written("json")
    log.debug("details")
    assert records(stream) == []


async def test_tasks_side_by_side_keep_their_keys_apart() -> None:
    stream = written("json")
    turn = asyncio.Barrier(2)

    async def work(name: str) -> None:
        with about(Key("team", name)):
            await turn.wait()
            log.info(name)
            await turn.wait()
            log.info(name)

    await asyncio.gather(work("one"), work("two"))
    found = [(item["oasisdeployment"], item["message"]) for item in records(stream)]
    assert sorted(found) == [("team/one", "one")] * 2 + [("team/two", "two")] * 2
