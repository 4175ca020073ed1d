"""An owner and a reader, each in a process of its own, driven by the test over a pipe."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from oasis_runtime.pd.counters import OwnerCounters, ReaderCounters
from oasis_runtime.pd.exporter import Exporter
from oasis_runtime.pd.importer import Importer
from oasis_runtime.pd.settings import TransferSettings
from oasis_runtime.pd.types import (
    Admitted,
    Ended,
    Export,
    Landed,
    Lost,
    Mode,
    Pages,
    Peer,
    Reason,
)

LAYERS, HEADS, BLOCKS, PAGE_BYTES = 8, 2, 256, 16384
FINGERPRINT = "test-model/8x2/16384"
DIGEST = b"of a prompt"

LEASE_SECONDS = 3.0
SETTINGS = TransferSettings(
    host="127.0.0.1",
    port=0,
    lease_seconds=LEASE_SECONDS,
    heartbeat_seconds=0.5,
    landing_bytes=32 << 20,
    operation_seconds=3.0,
    connect_seconds=2.0,
    offer_grace_seconds=0.5,
)


def page_words(layer: Any, head: Any, host_block: Any) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """The 32-bit word that fills a page of the owner's pool: different for every page."""
    return np.asarray(1 + host_block + BLOCKS * (head + HEADS * layer), dtype=np.uint32)


def host_blocks(count: int, first: int = 0) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Host blocks of an export: scattered, backwards."""
    return ((BLOCKS - 1 - first - np.arange(count)) % BLOCKS).astype(np.int32)


def blob_of(request_id: str, nbytes: int) -> bytes:
    seed = request_id.encode() * (nbytes // len(request_id) + 1)
    return seed[:nbytes]


class Pool:
    """A host tier of uint32[layers, heads, blocks, words]."""

    page_bytes = PAGE_BYTES
    layers = LAYERS
    kv_heads = HEADS

    def __init__(self) -> None:
        grid = np.indices((LAYERS, HEADS, BLOCKS))
        words = page_words(*grid).reshape(-1, 1)
        self._pages = np.repeat(words, PAGE_BYTES // 4, axis=1)

    def read_pages(
        self,
        block_ids: np.ndarray[Any, np.dtype[np.int32]],
        pages: Pages,
        out: np.ndarray[Any, np.dtype[np.uint8]],
    ) -> None:
        layer, head, block = pages.T
        rows = block_ids[block] + BLOCKS * (head + HEADS * layer)
        target = out.view(np.uint32).reshape(len(pages), -1)
        np.take(self._pages, rows, axis=0, out=target, mode="clip")


class OwnerActor:
    def __init__(self, settings: TransferSettings, fingerprint: str) -> None:
        self._exporter = Exporter(settings, Pool(), fingerprint)
        self._exporter.start()
        self._ended: list[Ended] = []

    def port(self) -> int:
        return self._exporter.port

    def offer(
        self, request_id: str, generation: int, blocks: int, hot: Pages, blob_bytes: int
    ) -> None:
        blob = blob_of(request_id, blob_bytes)
        export = Export(request_id, generation, blocks * 32, host_blocks(blocks), hot, blob, DIGEST)
        self._exporter.offer(export)

    def withdraw(self, request_id: str) -> None:
        self._exporter.withdraw(request_id)

    def wait_ended(self, count: int, seconds: float) -> list[Ended]:
        """At least ``count`` ended exports; fewer when they do not end within ``seconds``."""
        deadline = time.monotonic() + seconds
        while len(self._ended) < count and time.monotonic() < deadline:
            self._ended += self._exporter.poll()
            time.sleep(0.002)
        ended, self._ended = self._ended, []
        return ended

    def outstanding(self) -> tuple[int, float]:
        return self._exporter.outstanding(), self._exporter.oldest_age()

    def counters(self) -> OwnerCounters:
        return self._exporter.counters()

    def idle_cpu(self, seconds: float) -> float:
        return idle_cpu(seconds)

    def close(self) -> None:
        self._exporter.close()


@dataclass
class Read:
    """What a reader got of one request."""

    n_tokens: int = -1
    blob: bytes = b""
    pages_total: int = -1
    pages: list[tuple[int, int, int]] = field(default_factory=list)
    wrong: int = 0
    admission_done: bool = False
    tickets_done: list[int] = field(default_factory=list)
    lost: str | None = None
    lost_after: float = -1.0
    seconds: float = -1.0


class ReaderActor:
    def __init__(self, settings: TransferSettings, fingerprint: str) -> None:
        self._importer = Importer(settings, fingerprint, PAGE_BYTES)
        self._importer.start()
        self._reads: dict[str, Read] = {}
        self._asked: dict[str, float] = {}
        self._kept: list[Landed] = []
        self._keep = False

    def keep(self, keep: bool) -> None:
        """Whether to hold on to landed memory instead of giving it back."""
        self._keep = keep
        if not keep:
            for landed in self._kept:
                landed.done()
            self._kept = []

    def admit(
        self,
        request_id: str,
        port: int,
        generation: int,
        mode: Mode,
        remote: str | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self._reads[request_id] = Read()
        self._asked[request_id] = time.monotonic()
        peer = Peer(host, port)
        self._importer.admit(request_id, peer, remote or request_id, generation, DIGEST, mode)

    def fetch(self, wanted: dict[str, Pages]) -> list[int | None]:
        return [self._importer.fetch(request, pages) for request, pages in wanted.items()]

    def release(self, request_id: str) -> None:
        self._importer.release(request_id)

    def _take(self) -> None:
        for event in self._importer.poll():
            read = self._reads[event.request_id]
            read.seconds = time.monotonic() - self._asked[event.request_id]
            match event:
                case Admitted():
                    read.n_tokens = event.n_tokens
                    read.blob = event.blob
                    read.pages_total = event.pages_total
                case Landed():
                    layer, head, block = event.pages.T
                    host = host_blocks(BLOCKS)[block]
                    expected = page_words(layer, head, host).reshape(-1, 1)
                    read.wrong += int((event.data.view(np.uint32) != expected).any(axis=1).sum())
                    read.pages += [tuple(page) for page in event.pages.tolist()]
                    if event.last and event.reason is Reason.ADMISSION:
                        read.admission_done = True
                    elif event.last:
                        read.tickets_done.append(event.ticket)
                    if self._keep:
                        self._kept.append(event)
                    else:
                        event.done()
                case Lost():
                    read.lost = event.reason
                    read.lost_after = read.seconds

    def wait(self, request_id: str, what: str, value: Any, seconds: float) -> Read:
        """The read, once its field ``what`` is ``value`` (or not None); or after ``seconds``."""
        deadline = time.monotonic() + seconds
        read = self._reads[request_id]
        while time.monotonic() < deadline:
            self._take()
            found = getattr(read, what)
            if found is not None if value is None else found == value:
                break
            time.sleep(0.0005)
        return read

    def wait_pages(self, request_id: str, count: int, seconds: float) -> int:
        """Number of pages that have come, at least ``count`` or after ``seconds``."""
        deadline = time.monotonic() + seconds
        read = self._reads[request_id]
        while len(read.pages) < count and time.monotonic() < deadline:
            self._take()
        return len(read.pages)

    def counters(self) -> ReaderCounters:
        return self._importer.counters()

    def wait_landing_free(self, seconds: float) -> int:
        deadline = time.monotonic() + seconds
        while self.counters().landing_used_bytes and time.monotonic() < deadline:
            self._take()
            time.sleep(0.002)
        return self.counters().landing_used_bytes

    def idle_cpu(self, seconds: float) -> float:
        return idle_cpu(seconds)

    def poll_microseconds(self, times: int) -> float:
        start = time.perf_counter()
        for _ in range(times):
            self._importer.poll()
        return (time.perf_counter() - start) / times * 1e6

    def close(self) -> None:
        self._importer.close()


def idle_cpu(seconds: float) -> float:
    """Cores that this process burns while its main thread waits for ``seconds``."""
    before = time.process_time()
    signal.sigtimedwait([], seconds)
    return (time.process_time() - before) / seconds


def _serve(pipe: Connection, kind: type, args: tuple[Any, ...]) -> None:
    os.environ.setdefault("UCX_NET_DEVICES", "lo")
    try:
        actor = kind(*args)
    except Exception as error:  # noqa: BLE001 - raised in the test
        pipe.send((False, error))
        return
    pipe.send((True, None))
    while True:
        try:
            name, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, getattr(actor, name)(*arguments)))
        except Exception as error:  # noqa: BLE001 - raised in the test
            pipe.send((False, error))
        if name == "close":
            return


class Remote:
    """A process with an actor in it."""

    def __init__(self, kind: type, *args: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, kind, args), daemon=True)
        self._process.start()
        theirs.close()
        self._started = False

    def _answer(self, seconds: float) -> Any:
        if not self._pipe.poll(seconds):
            raise TimeoutError("the process does not answer")
        fine, value = self._pipe.recv()
        if not fine:
            raise value
        return value

    def ready(self) -> None:
        """Waits for the actor's start; raises what that raised."""
        if not self._started:
            self._answer(60.0)
            self._started = True

    def call(self, name: str, *args: Any, seconds: float = 30.0) -> Any:
        """The actor's answer."""
        self.ready()
        self._pipe.send((name, args))
        return self._answer(seconds)

    def signal(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def alive(self) -> bool:
        return self._process.is_alive()

    def end(self) -> None:
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
