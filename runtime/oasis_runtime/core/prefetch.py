"""Copies pages into the fast tier on threads, in the order in which layers will need them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import numpy as np

from oasis_runtime.kernels.contract import I32, I64, Kernels

_POLL_SECONDS = 20e-6


@dataclass(frozen=True)
class _Slice:
    """One thread's share of a batch; ``ends[layer]`` moves are done when the layer is."""

    moves: I32
    future: Future[float]
    progress: I64
    ends: I64


class Prefetcher:
    """At most one batch is under way; the engine thread submits, waits and drains."""

    def __init__(
        self,
        kernels: Kernels,
        layers: int,
        page_bytes: int,
        threads: int,
        failed: Callable[[I32, OSError], None],
    ) -> None:
        """``failed`` is told, where a batch is drained, the moves that an OSError left undone."""
        self._kernels = kernels
        self._layers = layers
        self._page_bytes = page_bytes
        self._threads = threads
        self._failed = failed
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="oasis-prefetch")
        self._batch: Sequence[_Slice] = ()
        self.bytes_per_second = 0.0
        """Exponentially weighted mean over the batches so far, 0 before the first."""

    @property
    def busy(self) -> bool:
        """Whether a batch has been submitted that nobody has drained."""
        return bool(self._batch)

    def submit(self, moves: I32) -> None:
        """Start copying int32 [n, 4] of (layer, head, host block, slot), ascending in layer.

        The batch before it is drained first: a slot may be the target of one copy only.
        """
        self.drain()
        slices = []
        for i in range(min(self._threads, len(moves))):
            share = np.ascontiguousarray(moves[i :: self._threads])
            progress = np.zeros(1, np.int64)
            ends = np.searchsorted(share[:, 0], np.arange(self._layers), side="right")
            future = self._pool.submit(self._run, share, progress)
            slices.append(_Slice(share, future, progress, ends))
        self._batch = slices

    def _run(self, moves: I32, progress: I64) -> float:
        start = time.perf_counter()
        self._kernels.copy(moves, progress)
        return len(moves) * self._page_bytes / max(time.perf_counter() - start, 1e-9)

    def wait(self, layer: int, seconds: float) -> float:
        """Wait up to ``seconds`` for the pages of ``layer``; returns the time it took."""
        if not any(s.progress[0] < s.ends[layer] for s in self._batch):
            return 0.0
        start = time.perf_counter()
        while (spent := time.perf_counter() - start) < seconds:
            if not any(s.progress[0] < s.ends[layer] and not s.future.done() for s in self._batch):
                break
            time.sleep(_POLL_SECONDS)
        return spent

    def reap(self) -> None:
        """Drain the batch if nothing of it is under way any more."""
        if all(s.future.done() for s in self._batch):
            self.drain()

    def drain(self) -> float:
        """Wait for the whole batch; returns the time it took. Raises what a copy raised, unless
        that is an OSError."""
        if not self._batch:
            return 0.0
        start = time.perf_counter()
        batch, self._batch = self._batch, ()
        wait([s.future for s in batch])
        rate, undone, cause = 0.0, [], None
        for s in batch:
            try:
                rate += s.future.result()
            except OSError as error:
                undone.append(s.moves[s.progress[0] :])
                cause = error
        if cause is not None:
            self._failed(np.concatenate(undone), cause)
        else:
            old = self.bytes_per_second
            self.bytes_per_second = rate if old == 0 else 0.9 * old + 0.1 * rate
        return time.perf_counter() - start

    def close(self) -> None:
        try:
            self.drain()
        finally:
            self._pool.shutdown()
