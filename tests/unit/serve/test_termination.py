"""SIGTERM before the engine serves, seen from outside: real processes with real signals."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

END_SECONDS = 5

BUSY = "while True: pass"
IN_A_POLL_THAT_SWALLOWS_EXCEPTIONS = """
import zmq
with zmq.Context() as context:
    poller = zmq.Poller()
    poller.register(context.socket(zmq.ROUTER), zmq.POLLIN)
    while True:
        try: poller.poll(60_000)
        except BaseException: pass
"""


@contextmanager
def program(*lines: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process of its own that runs ``lines``, from its first line of output on."""
    source = "\n".join(["from oasis_runtime.serve import termination", *lines])
    command = [sys.executable, "-c", source]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
@pytest.mark.parametrize("work", [BUSY, IN_A_POLL_THAT_SWALLOWS_EXCEPTIONS], ids=["busy", "poll"])
def test_a_signal_ends_it_cleanly_and_with_a_sentence(work: str, number: signal.Signals) -> None:
    with program("termination.end_at_once()", "print('up', flush=True)", work) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        _, said = process.communicate(timeout=END_SECONDS)
        assert process.returncode == 0
        assert said == f"oasis_runtime: {number.name} before the engine was ready; ended\n"


def test_its_children_end_with_it() -> None:
    """They hold what vLLM's engine process has: a handler of their own that goes on."""
    with program(
        "import multiprocessing, os, signal, time",
        "def child():",
        "    signal.signal(signal.SIGTERM, lambda *_: None)",
        "    print(os.getpid(), flush=True)",
        "    while True: time.sleep(60)",
        "termination.end_at_once()",
        "multiprocessing.get_context('fork').Process(target=child).start()",
        BUSY,
    ) as process:
        assert process.stdout is not None
        child = Path("/proc") / process.stdout.readline().strip()
        process.terminate()
        assert process.wait(END_SECONDS) == 0
        deadline = time.monotonic() + END_SECONDS
        # Whoever inherits it may not have collected it yet.
        while child.exists() and "State:\tZ" not in (child / "status").read_text():
            assert time.monotonic() < deadline


def test_a_signal_between_two_programs_ends_the_second() -> None:
    second = f"from oasis_runtime.serve import termination; termination.end_at_once()\n{BUSY}"
    with program(
        "import os, sys",
        "termination.hold()",
        "os.kill(os.getpid(), 15)",
        "print('survived', flush=True)",
        f"os.execv(sys.executable, [sys.executable, '-c', {second!r}])",
    ) as process:
        said, _ = process.communicate(timeout=END_SECONDS)
        assert said == "survived\n"
        assert process.returncode == 0


def test_nothing_that_takes_long_is_imported_before_the_handler() -> None:
    with program(
        "import sys",
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))",
    ) as process:
        said, _ = process.communicate(timeout=60)
    imported = set(said.split())
    assert "oasis_runtime" in imported
    assert not imported & {"pydantic", "numpy", "yaml", "torch", "vllm"}
