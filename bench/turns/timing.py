"""How long the decode thread spends in the engine's selections."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from oasis_runtime.core.engine import SparseEngine


@dataclass
class Clock:
    seconds: float = 0.0


@contextmanager
def selecting() -> Iterator[Clock]:
    """Time of every engine's :meth:`SparseEngine.select` meanwhile."""
    clock, select = Clock(), SparseEngine.select

    def timed(self: SparseEngine, *arguments: Any) -> None:
        start = time.perf_counter()
        select(self, *arguments)
        clock.seconds += time.perf_counter() - start

    SparseEngine.select = timed  # type: ignore[method-assign,assignment]
    try:
        yield clock
    finally:
        SparseEngine.select = select  # type: ignore[method-assign]
