"""Real servers, ``python -m oasis_runtime serve``, and a pair of them as a router drives it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from oasis_runtime.contract import EngineConfig, Metric
from tests.engine.inprocess.asks import Tokens
from tests.engine.metrics import Metrics

START_SECONDS = 240
"""Measured 20 s for two on two idle cores; other work on the machine makes it slower."""
ANSWER_SECONDS = 240
STOP_SECONDS = 60
NAME = "smol"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Raises AssertionError with ``what`` when it has not come true within ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"after {seconds:g} s: {what}"
        time.sleep(0.05)


class Server:
    """One engine from its configuration file on."""

    def __init__(self, config: EngineConfig, folder: Path) -> None:
        self.config = config
        self._file = folder / f"{config.role}.yaml"
        self._log = folder / f"{config.role}.log"
        self._file.write_text(yaml.safe_dump(config.model_dump(mode="json", exclude_none=True)))
        self._process: subprocess.Popen[bytes] | None = None
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{config.port}", timeout=ANSWER_SECONDS
        )

    def start(self) -> None:
        """Does not wait; see :meth:`wait_until_healthy`."""
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "oasis_runtime", "serve", "--config", self._file],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "UCX_NET_DEVICES": "lo"},
                # Its children form a group with it, so that they die like a pod's.
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        return self._log.read_text()

    def wait_until_healthy(self) -> None:
        def healthy() -> bool:
            assert self.alive, self.log()[-4000:]
            try:
                return self.client.get("/health").status_code == 200
            except httpx.TransportError:
                return False

        wait_until(healthy, START_SECONDS, f"{self.config.role} is not healthy")

    def kill_engine(self) -> int:
        """Only the process that computes, as the kernel does when memory is short. Returns the
        exit status of the server, which notices."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task").glob("*/children")
        pids = [pid for listed in children for pid in listed.read_text().split()]
        (engine,) = [
            pid for pid in pids if b"EngineCore" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        os.kill(int(engine), signal.SIGKILL)
        return self._process.wait(STOP_SECONDS)

    def kill(self) -> None:
        """As a pod dies: all of its processes at once, without a word."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        if self.alive:
            assert self._process is not None
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        self.client.close()

    def post(self, body: Mapping[str, Any]) -> httpx.Response:
        return self.client.post("/v1/completions", json={"model": NAME, **body})

    @contextmanager
    def streamed(self, prompt: Tokens, tokens: int, **fields: Any) -> Iterator[Iterator[int]]:
        """The answer's tokens as they come; leaving early is the client going away."""
        wanted = body(prompt, tokens, model=NAME, stream=True, **fields)
        with self.client.stream("POST", "/v1/completions", json=wanted) as response:
            assert response.status_code == 200
            yield _tokens(response)

    def metrics(self) -> Metrics:
        return Metrics.parse(self.client.get("/metrics").text)

    def wait_for(self, condition: Callable[[Metrics], bool], seconds: float, what: str) -> Metrics:
        """Counts reach /metrics with the engine's next report, some time after the answer."""
        seen = self.metrics()

        def come() -> bool:
            nonlocal seen
            seen = self.metrics()
            return condition(seen)

        wait_until(come, seconds, what)
        return seen

    def processes(self) -> Iterator[tuple[Path, list[str]]]:
        """Folder in /proc of each of the server's living processes, and the fields of its ``stat``
        from the third on."""
        assert self._process is not None
        group = self._process.pid
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except FileNotFoundError:  # ended meanwhile
                continue
            if int(fields[2]) == group:
                yield stat.parent, fields

    def cpu_seconds(self) -> float:
        """CPU time that the server's living processes have used."""
        total = sum(int(fields[11]) + int(fields[12]) for _, fields in self.processes())
        return total / os.sysconf("SC_CLK_TCK")


def body(prompt: Tokens, tokens: int, **fields: Any) -> dict[str, Any]:
    """A greedy completion without an end but its length, that returns its tokens."""
    return {
        "prompt": list(prompt),
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
        **fields,
    }


def tokens_of(response: httpx.Response) -> Tokens:
    assert response.status_code == 200, response.text
    return tuple(response.json()["choices"][0]["token_ids"])


class Pair:
    """A prefill and a decode engine; requests go to one and then the other, as a router does it."""

    def __init__(self, prefill: Server, decode: Server) -> None:
        self.prefill = prefill
        self.decode = decode

    def up(self) -> None:
        """Start what is not running."""
        down = [server for server in (self.prefill, self.decode) if not server.alive]
        for server in down:
            server.start()
        for server in down:
            server.wait_until_healthy()

    def stop(self) -> None:
        self.prefill.stop()
        self.decode.stop()

    def prefilled(self, prompt: Tokens, **fields: Any) -> dict[str, Any]:
        """The prompt's export, as the prefill engine describes it to the router."""
        wish = {"do_remote_decode": True, "do_remote_prefill": False}
        response = self.prefill.post(body(prompt, 1, kv_transfer_params=wish, **fields))
        assert response.status_code == 200, response.text
        params: dict[str, Any] = response.json()["kv_transfer_params"]
        return params

    def ask(self, prompt: Tokens, tokens: int, **fields: Any) -> httpx.Response:
        params = self.prefilled(prompt, **fields)
        return self.decode.post(body(prompt, tokens, kv_transfer_params=params, **fields))

    @contextmanager
    def streamed(self, prompt: Tokens, tokens: int, **fields: Any) -> Iterator[Iterator[int]]:
        """The decode engine's :meth:`Server.streamed`."""
        params = self.prefilled(prompt, **fields)
        with self.decode.streamed(prompt, tokens, kv_transfer_params=params, **fields) as answer:
            yield answer

    def outstanding(self) -> float:
        """Exports that the prefill engine keeps."""
        return self.prefill.metrics().value(Metric.EXPORTS)


def _tokens(response: httpx.Response) -> Iterator[int]:
    for line in response.iter_lines():
        data = line.removeprefix("data: ")
        if not line or data == "[DONE]":
            continue
        event = json.loads(data)
        assert "error" not in event, event
        for choice in event["choices"]:
            yield from choice.get("token_ids") or ()
