"""The end of an engine that has not begun to serve: at once, whatever it is doing.

A starting engine has nothing to lose, and two things keep SIGTERM from ending it. In a container
it is process 1, for which the kernel drops a signal without a handler, and vLLM has none while it
imports. Then vLLM has one that raises KeyboardInterrupt, and pyzmq's poll, where the API server
waits for its engine process, swallows what a handler raises. So the handler here raises nothing.

Standard library only: it is imported before all else.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from types import FrameType

SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})
EXIT_STATUS = 0
"""As after a drain: who asked for the end got it."""


def end_at_once() -> None:
    """From now on a signal ends this process and its children, until somebody else handles it.

    A signal that :func:`hold` has kept arrives here.
    """
    for number in SIGNALS:
        signal.signal(number, _end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def hold() -> None:
    """Keep signals for the program that replaces this one; ``exec`` loses the handlers."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    # Not through logging or sys.stderr: the signal may have interrupted either in mid-line.
    name = signal.Signals(number).name
    os.write(2, f"oasis_runtime: {name} before the engine was ready; ended\n".encode())
    for child in multiprocessing.active_children():
        child.kill()
    os._exit(EXIT_STATUS)
