"""The end of a whole engine that has no request: as process 1, which a container's is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.engine.servers import START_SECONDS, free_port, wait_until

STARTING_SECONDS = 5
READY_SECONDS = 15
"""vLLM takes itself apart in 2.7 s of CPU time, most of it garbage collection; a drain has 35 s."""


@dataclass(frozen=True)
class Engine:
    """A ``serve`` under ``unshare``, which ends with its status."""

    outside: subprocess.Popen[bytes]
    first: int
    """Its process number outside; inside it is 1."""
    log: Path
    port: int

    def has_said(self, text: str) -> bool:
        return text in self.log.read_text()

    def has_loaded(self, library: str) -> bool:
        return library in Path(f"/proc/{self.first}/maps").read_text()

    def is_healthy(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/health").status_code == 200
        except httpx.TransportError:
            return False


@contextmanager
def engine(model: Path, folder: Path) -> Iterator[Engine]:
    port, log = free_port(), folder / "serve.log"
    settings = {
        "max_model_len": 2048,
        "port": port,
        "tiers.host_bytes": 256 << 20,
        "tiers.fast_bytes": 64 << 20,
        "links.force": "true",
    }
    with log.open("wb") as output:
        outside = subprocess.Popen(
            [
                *("unshare", "--pid", "--fork", "--kill-child", "--mount-proc"),
                *(sys.executable, "-m", "oasis_runtime", "serve", "--model", str(model)),
                *(word for key, value in settings.items() for word in ("--set", f"{key}={value}")),
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        children = Path(f"/proc/{outside.pid}/task/{outside.pid}/children")
        wait_until(lambda: bool(children.read_text()), START_SECONDS, "nothing has started")
        yield Engine(outside, int(children.read_text()), log, port)
    finally:
        outside.kill()
        outside.wait()


@dataclass(frozen=True)
class Moment:
    has_come: Callable[[Engine], bool]
    seconds: float
    """To the end from a signal in this moment."""


MOMENTS = {
    "imports": Moment(lambda engine: engine.has_loaded("libtorch_cpu.so"), STARTING_SECONDS),
    "weights": Moment(lambda engine: engine.has_said("Starting to load model"), STARTING_SECONDS),
    "ready": Moment(Engine.is_healthy, READY_SECONDS),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_sigterm_ends_an_engine_at_any_moment_of_its_start(
    model: Path, tmp_path: Path, name: str
) -> None:
    moment = MOMENTS[name]
    with engine(model, tmp_path) as started:

        def come() -> bool:
            assert started.outside.poll() is None, started.log.read_text()[-4000:]
            return moment.has_come(started)

        wait_until(come, START_SECONDS, f"{name} has not come")
        os.kill(started.first, signal.SIGTERM)
        assert started.outside.wait(moment.seconds) == 0, started.log.read_text()[-4000:]
