"""Whether a server that has ended was asked to."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
import uvloop

from oasis_runtime.serve.loop import ServerLoop


async def serve_until_signal(number: signal.Signals) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(number, ended.set)
    os.kill(os.getpid(), number)
    await ended.wait()


async def serve_until_the_engine_dies() -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: None)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_a_signal_has_asked_and_is_handled_as_ever(number: signal.Signals) -> None:
    loop = ServerLoop()
    uvloop.run(serve_until_signal(number), loop_factory=lambda: loop)
    assert loop.asked


def test_an_end_without_a_signal_was_not_asked_for() -> None:
    loop = ServerLoop()
    uvloop.run(serve_until_the_engine_dies(), loop_factory=lambda: loop)
    assert not loop.asked
