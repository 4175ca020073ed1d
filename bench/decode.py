"""Decode throughput against stock dense vLLM, side by side in one run.

    python bench/decode.py [--model FOLDER] [--repeats 3]

Two engines, one stock and one ours, live in processes of their own and take turns, so that a
machine that drifts drifts for both. A figure is the median over the repeats of decoded tokens per
second of wall time, without the prompt: the time for many tokens less the time for one. Prompts are
repetitions of a computed one (``bench/turns/filling.py``), and positions go past what the model was
trained for: this is about time, not about answers.

``speedup_16k_saturated``: both with a fast tier of the same size, full. Stock serves as many
requests of 16K at once as fit there; ours serves 16.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import result
from bench.command_line import parsed, parser_of
from bench.turns.engine import STEPS, Case, Engine, Report, Sizes

CONTEXTS = (2048, 4096, 8192, 16384, 32768)
BATCHES = (1, 2, 4, 8)
MOST_TOKENS = 131072
"""Of context in all requests of a case: 3 GB of keys and values."""
CACHE_BYTES = 7 << 29
FAST_BYTES = 512 << 20
BUDGET = 2048
SATURATED = 16
SATURATED_CONTEXT = 16384
SATURATED_BYTES = 3 << 29
TOKEN_BYTES = 30 * 3 * 2 * 64 * 2
"""Of keys and values of SmolLM2-135M: layers, KV heads, both, head size, bfloat16."""


@dataclass(frozen=True)
class Pair:
    """What two engines did in turns, the first of each pair stock."""

    stock: Case
    ours: Case
    reports: Sequence[tuple[Report, Report]]

    @property
    def stock_rate(self) -> float:
        return statistics.median(self._rate(self.stock, s) for s, _ in self.reports)

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return statistics.median(self._rate(self.ours, o) for _, o in self.reports)

    @property
    def speedup(self) -> float:
        """The median of the ratios of neighbouring runs."""
        return statistics.median(
            self._rate(self.ours, o) / self._rate(self.stock, s) for s, o in self.reports
        )

    @property
    def selection_share(self) -> float:
        return statistics.median(o.selecting_seconds / o.seconds for _, o in self.reports)

    @staticmethod
    def _rate(case: Case, report: Report) -> float:
        return case.batch * STEPS / report.seconds


def compare(stock: Engine, ours: Engine, cases: tuple[Case, Case], repeats: int) -> Pair:
    stock.take_in(cases[0])
    ours.take_in(cases[1])
    reports = [(stock.decode(cases[0]), ours.decode(cases[1])) for _ in range(repeats)]
    pair = Pair(*cases, reports)
    print(f"{cases[1].name:8} {pair.rate:6.1f} tokens/s, {pair.speedup:.2f}x stock", flush=True)
    return pair


def started(model: str, stock: Sizes, ours: Sizes) -> tuple[Engine, Engine]:
    engines = Engine(model, stock), Engine(model, ours)
    for engine in engines:
        engine.wait()
    return engines


def grid(model: str, repeats: int) -> tuple[dict[Case, Pair], float]:
    """Pairs by case, and how long the first token of a second turn takes, over stock's."""
    stock, ours = started(
        model,
        Sizes(max(BATCHES), CACHE_BYTES),
        Sizes(max(BATCHES), CACHE_BYTES, FAST_BYTES, BUDGET),
    )
    cases = [Case(c, b) for c in CONTEXTS for b in BATCHES if c * b <= MOST_TOKENS]
    cases.append(Case(7168, 1))
    pairs = {case: compare(stock, ours, (case, case), repeats) for case in cases}
    turns = [ours.second_turn(n) / stock.second_turn(n) for n in range(1, 1 + repeats)]
    stock.stop()
    ours.stop()
    return pairs, statistics.median(turns)


def saturated(model: str, repeats: int) -> Pair:
    fit = SATURATED_BYTES // (TOKEN_BYTES * (SATURATED_CONTEXT + STEPS + 32))
    whole = SATURATED * TOKEN_BYTES * (SATURATED_CONTEXT + 256)
    stock, ours = started(
        model,
        Sizes(fit, SATURATED_BYTES),
        Sizes(SATURATED, whole, SATURATED_BYTES, BUDGET),
    )
    cases = Case(SATURATED_CONTEXT, fit), Case(SATURATED_CONTEXT, SATURATED)
    pair = compare(stock, ours, cases, repeats)
    stock.stop()
    ours.stop()
    return pair


def metrics(pairs: dict[Case, Pair], full: Pair) -> dict[str, float]:
    found: dict[str, float] = {}
    for case, pair in pairs.items():
        found[f"stock_tokens_per_second_{case.name}"] = pair.stock_rate
        found[f"tokens_per_second_{case.name}"] = pair.rate
        found[f"speedup_{case.name}"] = pair.speedup
    found["stock_tokens_per_second_16k_saturated"] = full.stock_rate
    found["tokens_per_second_16k_saturated"] = full.rate
    found["speedup_16k_saturated"] = full.speedup
    found["stock_requests_16k_saturated"] = full.stock.batch
    at_budget, long = pairs[Case(BUDGET, 1)], pairs[Case(16384, 1)]
    found["step_ratio_16k"] = at_budget.stock_rate / long.rate
    found["selection_share_7k_b1"] = pairs[Case(7168, 1)].selection_share
    found["selection_share_16k_b1"] = long.selection_share
    return found


def plot(pairs: dict[Case, Pair], full: Pair, path: Path) -> None:
    """Speedup over context, a line for each number of requests at once."""
    figure, axes = pyplot.subplots(figsize=(6, 4))
    for batch in BATCHES:
        mine = [case for case in pairs if case.batch == batch and case.context in CONTEXTS]
        axes.plot(
            [case.context // 1024 for case in mine],
            [pairs[case].speedup for case in mine],
            "o-",
            label=f"{batch} at once",
        )
    axes.plot([SATURATED_CONTEXT // 1024], [full.speedup], "k*", markersize=12, label="saturated")
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.set(
        xscale="log",
        xlabel="context, 1,024 tokens",
        ylabel=f"tokens per second over stock, budget {BUDGET:,}",
        xticks=[c // 1024 for c in CONTEXTS],
        xticklabels=[str(c // 1024) for c in CONTEXTS],
    )
    axes.minorticks_off()
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    options = parsed(parser)
    pairs, second_turn = grid(str(options.model), options.repeats)
    full = saturated(str(options.model), options.repeats)
    found = metrics(pairs, full) | {"second_turn_ratio": second_turn}
    path = result.write("decode", found)
    plot(pairs, full, path.with_suffix(".png"))
    print(f"wrote {path} and its plot")


if __name__ == "__main__":
    main()
