"""Whether a server that is used for long grows: threads, descriptors, memory, slots.

    python bench/soak.py [--model FOLDER] [--minutes 20]

One real server (``python -m oasis_runtime serve``) answers clients that ask without pause: prompts
of 16 to 3,000 tokens, many with a common beginning, answers of up to 128, all modes, some smaller
budgets, greedy and sampled, two samples at once; one client in five goes away before its answer
ends. Their context is more than the host tier holds, so that requests are preempted and cached
blocks are given out again.

Twenty times the clients rest, and what the server holds without a request is noted. Growth that
ends is a warm-up: every size of batch and answer comes for the first time once. Growth that goes
on is a leak. ``*_growth`` is the median of the last quarter of the rests less that of the third,
``memory_mb_growth_per_hour`` the slope of both, and ``memory_mb_warm_up`` what came before.
``failed`` requests got another answer than 200, or one of another length than they asked for.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import httpx

from bench import result
from bench.command_line import parsed, parser_of
from oasis_runtime.contract import (
    EngineConfig,
    LinkConfig,
    Metric,
    PredictionConfig,
    SelectionConfig,
    TierConfig,
)
from tests.engine.inprocess.asks import Tokens
from tests.engine.metrics import Metrics
from tests.engine.prompts import Prose
from tests.engine.servers import NAME, Server, free_port

CLIENTS = 6
RESTS = 20
REST_SECONDS = 120.0
PASSAGES = 40


@dataclass(frozen=True)
class Held:
    """What a server without requests holds."""

    threads: int
    descriptors: int
    memory_mb: float
    cache_share: float
    """Of the host tier's blocks that belong to a request."""

    @staticmethod
    def by(server: Server) -> Held:
        threads = descriptors = pages = 0
        for folder, fields in server.processes():
            threads += int(fields[17])
            pages += int(fields[21])
            descriptors += len(list((folder / "fd").iterdir()))
        memory = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
        share = server.metrics().value("vllm:kv_cache_usage_perc")
        return Held(threads, descriptors, memory, share)


class Client:
    """Asks what its random numbers say until it is told to stop."""

    def __init__(self, server: Server, prose: Prose, seed: int) -> None:
        self._server = server
        self._prose = prose
        self._random = random.Random(seed)
        self.counts: Counter[str] = Counter()

    def run(self, until: float) -> None:
        while time.monotonic() < until and self._server.alive:
            try:
                self._ask()
            except (AssertionError, httpx.HTTPError, KeyError) as error:
                self.counts["failed"] += 1
                print(f"failed: {error!r}", flush=True)

    def _ask(self) -> None:
        r = self._random
        prompt, tokens = self._prompt(), r.randint(1, 128)
        fields: dict[str, Any] = {}
        options: dict[str, Any] = {}
        if r.random() < 0.6:
            options["mode"] = r.choice(["sparse", "sparse", "auto", "dense"])
        if r.random() < 0.3:
            options["budget_tokens"] = r.choice([64, 256])
        if options:
            fields["vllm_xargs"] = {"oasis": options}
        if r.random() < 0.3:
            fields |= {"temperature": 0.8, "top_k": 20, "seed": r.randrange(1 << 20)}
        self.counts["requests"] += 1
        if r.random() < 0.2:
            self._leave(prompt, tokens, fields)
        else:
            self._stay(prompt, tokens, fields, samples=2 if r.random() < 0.1 else 1)

    def _prompt(self) -> Tokens:
        r = self._random
        length = int(16 * (3000 / 16) ** r.random())
        start = self._prose.passage(r.randrange(PASSAGES), length)
        own = self._prose.passage(PASSAGES + r.randrange(20), r.randint(1, 64))
        return (*start, *own)

    def _leave(self, prompt: Tokens, tokens: int, fields: dict[str, Any]) -> None:
        patience = self._random.randint(0, tokens)
        with self._server.streamed(prompt, tokens, **fields) as answer:
            for count, _ in enumerate(answer):
                if count >= patience:
                    self.counts["left"] += 1
                    return

    def _stay(self, prompt: Tokens, tokens: int, fields: dict[str, Any], samples: int) -> None:
        body = {
            "prompt": list(prompt),
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
            "n": samples if "seed" in fields else 1,
            **fields,
        }
        response = self._server.post(body)
        assert response.status_code == 200, response.text
        for choice in response.json()["choices"]:
            assert len(choice["token_ids"]) == tokens, (len(choice["token_ids"]), tokens)
            self.counts["tokens"] += tokens


def config(model: Path) -> EngineConfig:
    return EngineConfig(
        model=str(model),
        served_model_name=NAME,
        dtype="bfloat16",
        max_model_len=4096,
        max_num_seqs=8,
        port=free_port(),
        tiers=TierConfig(host_bytes=112 << 20, fast_bytes=48 << 20),
        selection=SelectionConfig(budget_tokens=512),
        prediction=PredictionConfig(method="auto", draft_tokens=2),
        links=LinkConfig(force=True),
    )


def rest(server: Server) -> Held:
    """Raises AssertionError when requests are still there long after their clients have gone."""
    server.wait_for(_without_requests, REST_SECONDS, "requests without clients")
    return Held.by(server)


def _without_requests(metrics: Metrics) -> bool:
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
    return not any(metrics.value(name) for name in names)


def soak(server: Server, prose: Prose, seconds: float) -> tuple[list[Held], Counter[str]]:
    clients = [Client(server, prose, seed) for seed in range(CLIENTS)]
    held = []
    for number in range(RESTS):
        until = time.monotonic() + seconds / RESTS
        threads = [threading.Thread(target=client.run, args=(until,)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if not server.alive:
            raise RuntimeError(f"the server died:\n{server.log()}")
        held.append(rest(server))
        print(f"rest {number + 1} of {RESTS}: {held[-1]}", flush=True)
    return held, sum((client.counts for client in clients), Counter())


@dataclass(frozen=True)
class Growth:
    """Of one thing that was counted at each rest."""

    values: Sequence[float]

    @property
    def warm_up(self) -> float:
        """Until the third quarter."""
        return statistics.median(self._third) - self.values[0]

    @property
    def after(self) -> float:
        """From the third quarter to the last."""
        return statistics.median(self._last) - statistics.median(self._third)

    @property
    def slope(self) -> float:
        """From one rest to the next, in the second half."""
        half = self.values[len(self.values) // 2 :]
        return statistics.linear_regression(range(len(half)), half).slope

    @property
    def _third(self) -> Sequence[float]:
        return self.values[len(self.values) // 2 : -len(self.values) // 4]

    @property
    def _last(self) -> Sequence[float]:
        return self.values[-len(self.values) // 4 :]


def metrics(
    held: Sequence[Held], counts: Counter[str], counted: Metrics, hours: float
) -> dict[str, float]:
    threads = Growth([h.threads for h in held])
    descriptors = Growth([h.descriptors for h in held])
    memory = Growth([h.memory_mb for h in held])
    fallbacks = (
        counted.value(Metric.FALLBACKS, reason=r) for r in ("fast_tier_full", "low_recall")
    )
    return {
        "minutes": 60 * hours,
        "requests": counts["requests"],
        "requests_left": counts["left"],
        "failed": counts["failed"],
        "preemptions": counted.value("vllm:num_preemptions_total"),
        "steps_sparse": counted.value(Metric.STEPS, mode="sparse"),
        "steps_dense": counted.value(Metric.STEPS, mode="dense"),
        "fallbacks": sum(fallbacks),
        "drafts_dropped": counted.value(Metric.DRAFTS_DROPPED),
        "threads": held[-1].threads,
        "threads_growth": threads.after,
        "descriptors": held[-1].descriptors,
        "descriptors_growth": descriptors.after,
        "memory_mb": held[-1].memory_mb,
        "memory_mb_warm_up": memory.warm_up,
        "memory_mb_growth": memory.after,
        "memory_mb_growth_per_hour": memory.slope * len(held) / hours,
        "cache_share_at_rest": max(h.cache_share for h in held),
    }


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    options = parsed(parser)
    with tempfile.TemporaryDirectory() as folder:
        server = Server(config(options.model), Path(folder))
        server.start()
        try:
            server.wait_until_healthy()
            start = time.monotonic()
            held, counts = soak(server, Prose.of(options.model), 60 * options.minutes)
            hours = (time.monotonic() - start) / 3600
            counted = server.metrics()
        finally:
            server.stop()
    found = metrics(held, counts, counted, hours)
    for name, value in sorted(found.items()):
        print(f"{name:26}{value:12.2f}")
    print(f"wrote {result.write('soak', found)}")


if __name__ == "__main__":
    main()
