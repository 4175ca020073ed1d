"""Time of one thread, divided among parts of a decode step.

Each timed function belongs to a part, and time belongs to the part of the innermost one that is
running, so that the parts add up to the whole: what no function explains is :attr:`Part.REST`.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import Any


class Part(StrEnum):
    WEIGHTS = "weights"
    """Products with the weights of the layers."""
    MODEL = "model"
    """The rest of the model's forward: norms, rotary embedding, activations, calls."""
    ATTENTION = "attention"
    """vLLM's kernel, its plan, and the write of keys and values to its cache."""
    SELECTION = "selection"
    TABLES = "tables"
    """Block tables over the fast tier, with the waits for pages that they name, and the rows."""
    SUMMARIES = "summaries"
    """Bounds of the new keys, and their copies in the fast tier."""
    BEGIN_END = "begin_end"
    """Of the engine's step: how requests are served, what is pinned, which copies start, counts."""
    AUDIT = "audit"
    SAMPLING = "sampling"
    """Logits too, which are a product with the largest matrix of the model."""
    REST = "rest"
    """vLLM's scheduler, the preparation of its inputs, and its answers."""


class Stopwatch:
    """Of the thread that makes it. ``seconds``, ``calls``: by part. ``clock``: in seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.seconds = dict.fromkeys(Part, 0.0)
        self.calls: Counter[Part] = Counter()
        self._running = [Part.REST]
        self._thread = threading.get_ident()
        self._since = 0.0

    def start(self) -> None:
        self._since = self._clock()

    def stop(self) -> None:
        self._lap()

    def timed(self, part: Part, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, whose time is the part's, less that of others that it calls.

        Raises RuntimeError when it is called on another thread: nothing would add up.
        """

        @functools.wraps(function)
        def wrapper(*arguments: Any, **keywords: Any) -> Any:
            if threading.get_ident() != self._thread:
                raise RuntimeError(f"{function.__qualname__} runs on a thread of its own")
            self._lap()
            self._running.append(part)
            self.calls[part] += 1
            try:
                return function(*arguments, **keywords)
            finally:
                self._lap()
                self._running.pop()

        return wrapper

    def _lap(self) -> None:
        now = self._clock()
        self.seconds[self._running[-1]] += now - self._since
        self._since = now


def overhead(calls: int = 100_000) -> float:
    """Seconds that a wrapped call takes longer than a plain one."""

    def nothing() -> None:
        return None

    def run(function: Callable[[], Any]) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            function()
        return time.perf_counter() - start

    return (run(Stopwatch().timed(Part.REST, nothing)) - run(nothing)) / calls
