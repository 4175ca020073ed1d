"""Copies that complete or fail when the test says so, in place of a slow and a broken link."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition

import numpy as np

from oasis_runtime.core.prefetch import Prefetcher
from oasis_runtime.core.tables import SlotState, Tables
from oasis_runtime.kernels.contract import I32, I64
from oasis_runtime.kernels.cpu import CpuKernels

_DEADLINE = 30.0


class Gate:
    """Lets the pages of a batch through one by one, or all when it is open."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._open = True
        self._allowed = self._entered = self._done = self._total = 0
        self._fails: Callable[[], bool] = lambda: False

    def close(self, pages: int) -> None:
        """From here on ``pages`` copies wait."""
        with self._changed:
            self._open = False
            self._allowed = self._entered = self._done = 0
            self._total = pages

    def open(self) -> None:
        with self._changed:
            self._open = True
            self._changed.notify_all()

    def allow(self, pages: int) -> None:
        """Let so many copies through and return when they are complete."""
        with self._changed:
            self._allowed = min(self._total, self._allowed + pages)
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._done >= self._allowed, _DEADLINE):
                raise TimeoutError(f"{self._done} of {self._allowed} copies are done")

    def fail(self, when: Callable[[], bool]) -> None:
        """From here on a copy fails where ``when`` says so as it is let through."""
        with self._changed:
            self._fails = when

    def enter(self) -> None:
        """Raises OSError when the copy fails."""
        with self._changed:
            passed = self._changed.wait_for(
                lambda: self._open or self._entered < self._allowed, _DEADLINE
            )
            if not passed:
                raise TimeoutError("the gate was never opened")
            self._entered += 1
            if self._fails():
                raise OSError("the link is broken")

    def leave(self, without: int = 0) -> None:
        """A copy has ended; so many that were to follow it will not come."""
        with self._changed:
            self._done += 1
            self._total -= without
            self._allowed = min(self._allowed, self._total)
            self._changed.notify_all()


class GatedKernels(CpuKernels):
    """CPU kernels whose copies wait for the gate, and refuse a slot that is not theirs to fill."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self.gate = Gate()
        self.tables = tables

    def copy(self, moves: I32, progress: I64) -> None:
        done = np.zeros(1, np.int64)
        for i, (layer, head, block, slot) in enumerate(moves):
            without = len(moves) - i - 1
            try:
                self.gate.enter()
                owner = head * self.tables.geometry.host_blocks + block
                state = self.tables.state[layer, slot]
                assert state == SlotState.ARRIVING, f"a copy into slot {slot}, which is {state}"
                assert self.tables.owner[layer, slot] == owner, f"slot {slot} has another owner"
                super().copy(moves[i : i + 1], done)
                progress[0] = i + 1
                without = 0
            finally:
                self.gate.leave(without)


class GatedPrefetcher(Prefetcher):
    """Opens the gate whenever the engine waits for a whole batch, which would never end else."""

    def __init__(
        self,
        kernels: GatedKernels,
        layers: int,
        page_bytes: int,
        threads: int,
        failed: Callable[[I32, OSError], None],
    ) -> None:
        super().__init__(kernels, layers, page_bytes, threads, failed)
        self._gate = kernels.gate

    def submit(self, moves: I32) -> None:
        self.drain()
        self._gate.close(len(moves))
        super().submit(moves)

    def drain(self) -> float:
        if self.busy:
            self._gate.open()
        return super().drain()
