"""What 1, 2, 4, 8 and 16 drafts a step are worth: agreement, acceptance and cost.

    python bench/drafts.py [--model FOLDER]

The engine's core serves the three tasks of ``bench/lookahead.py`` over a plain model in float32, on
one thread (``bench/plain/server.py``): prompts of 6,000 tokens, answers of 64, a budget of 1,024. A
step computes a token and up to k drafts of an n-gram, keeps those that are right, and selects with
the last row.

By k: ``acceptance``, share of the drafts that are right; ``tokens_per_step``; ``agreement``, share
of what the next token's query selects that was predicted for it; ``step_ratio``, time of a step
with k drafts over one without; ``row_cost``, what a draft adds to a step, in parts of one;
``speed``, tokens per second over those without drafts. ``k0`` drafts nothing.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch

from bench import result
from bench.command_line import parsed, parser_of
from bench.plain.llama import Attention, Llama, Shape
from bench.plain.server import PlainServer, Sizes
from bench.plain.weights import parts
from bench.replays.tasks import prompts
from oasis_runtime.contract import PrefetchConfig, SelectionConfig
from oasis_runtime.kernels.contract import Rows, SelectFlag

DRAFTS = (0, 1, 2, 4, 8, 16)
ANSWER, CHUNK, BLOCK = 64, 512, 32
SELECTION = SelectionConfig(mode="sparse", budget_tokens=1024, escalate=False)
NAME = "r"


def look_up(tokens: Sequence[int], most: int, shortest: int = 2, longest: int = 4) -> list[int]:
    """The tokens after the earliest occurrence of the longest suffix that occurs before."""
    for size in range(longest, shortest - 1, -1):
        suffix = list(tokens[-size:])
        for start in range(len(tokens) - size):
            if tokens[start : start + size] == suffix:
                return list(tokens[start + size : start + size + most])
    return []


class Watched(Llama):
    """Compares the set of each step with what the query of its first token selects."""

    def __init__(self, shape: Shape, weights: Mapping[str, torch.Tensor]) -> None:
        super().__init__(shape, weights)
        self.server: PlainServer | None = None
        self.compared = self.agreed = 0

    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, attention: Attention
    ) -> torch.Tensor:
        def watched(
            layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
        ) -> torch.Tensor:
            if self.server is not None:
                self._compare(self.server, layer, query[:1], int(positions[0]))
            return attention(layer, query, key, value)

        return super().forward(tokens, positions, watched)

    def _compare(self, server: PlainServer, layer: int, query: torch.Tensor, length: int) -> None:
        engine = server.engine
        tracked, tables = engine.requests[NAME], engine.tables
        if tracked.lane is None or not tracked.selection_length:
            return
        g, lane, budget = tables.geometry, tracked.lane, tracked.budget
        rows = Rows(
            lanes=np.array([lane], np.int32),
            tables=server.blocks(NAME)[None, : g.blocks_for(length)],
            sinks=np.array([budget.sinks], np.int32),
            window=np.array([tracked.window], np.int32),
            lengths=np.array([length], np.int32),
        )
        kept = tables.selected[lane, layer].copy(), tables.count[lane, layer].copy()
        own = query.view(1, g.heads, g.group, g.dim).float().contiguous().numpy()
        most = np.array([budget.selected], np.int32)
        flags = np.array([SelectFlag.COMPARE | SelectFlag.CHOOSE_ONLY], np.uint8)
        found = engine.kernels.select(layer, rows, own, g.dim**-0.5, most, flags, 0, 0)
        tables.selected[lane, layer], tables.count[lane, layer] = kept
        self.compared += found.compared
        self.agreed += found.agreed


@dataclass
class Run:
    """One answer with up to k drafts a step. ``seconds``: of steps, by the drafts that they had."""

    drafted: int = 0
    accepted: int = 0
    tokens: int = 0
    compared: int = 0
    agreed: int = 0
    seconds: list[tuple[int, float]] = field(default_factory=list)

    def add(self, other: Run) -> None:
        for name in ("drafted", "accepted", "tokens", "compared", "agreed", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def answer(server: PlainServer, model: Watched, prompt: list[int], first: int, k: int) -> Run:
    """Decode once to count and once, unwatched, to take the time."""
    run = Run()
    for watching in (True, False):
        model.server = server if watching else None
        model.compared = model.agreed = 0
        tokens = [*prompt, first]
        steps: list[tuple[int, float]] = []
        while len(tokens) < len(prompt) + ANSWER:
            drafts = look_up(tokens, k) if k else []
            start = time.perf_counter()
            best = server.step({NAME: [tokens[-1], *drafts]})[NAME].argmax(dim=1).tolist()
            seconds = time.perf_counter() - start
            right = 0
            while right < len(drafts) and drafts[right] == best[right]:
                right += 1
            server.reject(NAME, len(drafts) - right)
            tokens += best[: right + 1]
            steps.append((len(drafts), seconds))
            if watching:
                run.drafted += len(drafts)
                run.accepted += right
        server.reject(NAME, len(tokens) - 1 - len(prompt))
        if watching:
            run.compared, run.agreed = model.compared, model.agreed
    run.tokens = len(tokens) - len(prompt) - 1
    run.seconds = steps[1:]  # the first is dense: what was rejected took its set along
    model.server = None
    return run


def task(model: Watched, prompt: list[int]) -> dict[int, Run]:
    blocks = -(-(len(prompt) + ANSWER + max(DRAFTS) + 2) // BLOCK)
    server = PlainServer(
        model,
        Sizes(BLOCK, blocks, slots=3 * blocks),
        SELECTION,
        PrefetchConfig(cap=1.0, wait_ms=60000),
    )
    server.add(NAME, len(prompt))
    for at in range(0, len(prompt), CHUNK):
        logits = server.step({NAME: prompt[at : at + CHUNK]})[NAME]
    first = int(logits[-1].argmax())
    found = {k: answer(server, model, prompt, first, k) for k in DRAFTS}
    server.close()
    return found


def metrics(runs: dict[int, Run]) -> dict[str, float]:
    alone = statistics.median(seconds for _, seconds in runs[0].seconds)
    slow = runs[0].tokens / sum(seconds for _, seconds in runs[0].seconds)
    found = {}
    for k, run in runs.items():
        total = sum(seconds for _, seconds in run.seconds)
        found[f"agreement_k{k}"] = run.agreed / run.compared
        found[f"tokens_per_step_k{k}"] = run.tokens / len(run.seconds)
        if k:
            full = [seconds for drafts, seconds in run.seconds if drafts == k]
            ratio = statistics.median(full) / alone
            found[f"acceptance_k{k}"] = run.accepted / run.drafted
            found[f"step_ratio_k{k}"] = ratio
            found[f"row_cost_k{k}"] = (ratio - 1) / k
            found[f"speed_k{k}"] = run.tokens / total / slow
    return found


def main() -> None:
    parser = parser_of(__doc__)
    options = parsed(parser)
    torch.set_num_threads(1)
    model = Watched(*parts(options.model, torch.float32))
    runs = {k: Run() for k in DRAFTS}
    for name, prompt in prompts(options.model).items():
        for k, run in task(model, prompt).items():
            runs[k].add(run)
        print(f"answered {name}", flush=True)
    found = metrics(runs)
    for name, value in sorted(found.items()):
        print(f"{name:24}{value:10.4f}")
    print(f"wrote {result.write('drafts', found)}")


if __name__ == "__main__":
    main()
