"""The test's end of an engine in a process of its own."""

from __future__ import annotations

import multiprocessing
from dataclasses import dataclass
from typing import Any

from tests.engine.inprocess.asks import Answer, Ask, Held, Tokens
from tests.engine.inprocess.child import Setup, serve
from tests.engine.metrics import Metrics

START_SECONDS = 240
"""Measured 8 s on two idle cores; other work on the machine makes it slower."""
RUN_SECONDS = 300


@dataclass(frozen=True)
class Run:
    """What a few requests that were served together got, and what was counted meanwhile."""

    answers: list[Answer]
    counted: Metrics

    @property
    def tokens(self) -> list[Tokens]:
        return [answer.tokens for answer in self.answers]


class EngineProcess:
    """vLLM in a child process, which starts while the caller goes on."""

    def __init__(self, setup: Setup) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, setup), daemon=True)
        self._process.start()
        theirs.close()
        self._started = False

    def _wait_for_start(self) -> None:
        if not self._started:
            self._answer(START_SECONDS)
            self._started = True

    def _answer(self, seconds: float) -> Any:
        if not self._pipe.poll(seconds):
            raise TimeoutError(f"the engine does not answer within {seconds:g} s")
        fine, value = self._pipe.recv()
        if not fine:
            raise RuntimeError(f"in the engine's process:\n{value}")
        return value

    def _call(self, method: str, *arguments: Any) -> Any:
        self._wait_for_start()
        self._pipe.send((method, arguments))
        return self._answer(RUN_SECONDS)

    def begin(self, *asks: Ask) -> None:
        """Have the requests served while the caller does something else."""
        self._wait_for_start()
        self._pipe.send(("run", (asks,)))

    def answers(self) -> list[Answer]:
        """Of what was begun; waits for them."""
        found: list[Answer] = self._answer(RUN_SECONDS)
        return found

    def run(self, *asks: Ask) -> Run:
        """Serve the requests together."""
        before = self.metrics()
        self.begin(*asks)
        answers = self.answers()
        return Run(answers, self.metrics().since(before))

    def held(self) -> Held:
        found: Held = self._call("held")
        return found

    def metrics(self) -> Metrics:
        return Metrics.parse(self._call("metrics"))

    def close(self) -> None:
        self._pipe.close()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
