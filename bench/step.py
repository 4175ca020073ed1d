"""Where the time of a decode step goes, in stock dense vLLM and in ours, side by side in one run.

    python bench/step.py [--model FOLDER] [--repeats 3]

The engines take turns as in ``decode.py``. Each decodes a case as it is, which gives ``step_ms``,
and then with functions of vLLM and ours wrapped (``bench/turns/parts.py``), which gives the other
metrics: milliseconds a step, the median over the repeats. Every 16th step compares and samples; a
run has 32. ``wrapping_ms`` is what the wrapping adds to a step: its calls times the cost of one.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.colors import TABLEAU_COLORS

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import result
from bench.command_line import parsed, parser_of
from bench.decode import BUDGET, CACHE_BYTES, FAST_BYTES, started
from bench.turns.engine import STEPS, Case, Engine, Sizes
from bench.turns.stopwatch import Part, overhead

CASES = (Case(2048, 1), Case(8192, 1), Case(16384, 1), Case(8192, 4))
REQUESTS = max(case.batch for case in CASES)


@dataclass(frozen=True)
class Breakdown:
    """Of one engine in one case, in milliseconds a step. ``parts``: taken apart, so that they add
    up to ``step`` and ``wrapping``."""

    step: float
    parts: Mapping[Part, float]
    wrapping: float

    def metrics(self, case: Case, prefix: str) -> dict[str, float]:
        found = {f"{prefix}{part}_ms_{case.name}": value for part, value in self.parts.items()}
        return found | {
            f"{prefix}step_ms_{case.name}": self.step,
            f"{prefix}wrapping_ms_{case.name}": self.wrapping,
        }


def break_down(
    engines: Sequence[Engine], case: Case, repeats: int, call: float
) -> Sequence[Breakdown]:
    """``call``: seconds that wrapping one costs."""
    for engine in engines:
        engine.take_in(case)
    plain = [[engine.decode(case).seconds for engine in engines] for _ in range(repeats)]
    apart = [[engine.decode_apart(case) for engine in engines] for _ in range(repeats)]
    return [
        Breakdown(
            step=_milliseconds(own_plain),
            parts={part: _milliseconds([a.seconds[part] for a in own]) for part in Part},
            wrapping=_milliseconds([a.calls * call for a in own]),
        )
        for own_plain, own in zip(zip(*plain, strict=True), zip(*apart, strict=True), strict=True)
    ]


def _milliseconds(seconds: Sequence[float]) -> float:
    return statistics.median(seconds) / STEPS * 1e3


def plot(found: Mapping[Case, Sequence[Breakdown]], path: Path) -> None:
    """A bar for each engine and case, of its parts from the bottom up."""
    figure, axes = pyplot.subplots(figsize=(7.5, 4.5))
    columns = [
        (f"{case.context // 1024}K x {case.batch}\n{name}", breakdown)
        for case, pair in found.items()
        for name, breakdown in zip(("stock", "ours"), pair, strict=True)
    ]
    # A gap after each pair.
    positions = [i + i // 2 * 0.6 for i in range(len(columns))]
    base = [0.0] * len(columns)
    for colour, part in zip(TABLEAU_COLORS, Part, strict=True):
        heights = [max(0.0, breakdown.parts[part]) for _, breakdown in columns]
        axes.bar(positions, heights, bottom=base, color=colour, label=part)
        base = [low + high for low, high in zip(base, heights, strict=True)]
    axes.set_xticks(positions, [name for name, _ in columns], fontsize=8)
    axes.set_ylabel("ms of a decode step")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    options = parsed(parser)
    engines = started(
        str(options.model),
        Sizes(REQUESTS, CACHE_BYTES),
        Sizes(REQUESTS, CACHE_BYTES, FAST_BYTES, BUDGET),
    )
    call = overhead()
    found: dict[Case, Sequence[Breakdown]] = {}
    metrics: dict[str, float] = {}
    for case in CASES:
        found[case] = break_down(engines, case, options.repeats, call)
        for prefix, breakdown in zip(("stock_", ""), found[case], strict=True):
            metrics |= breakdown.metrics(case, prefix)
            parts = ", ".join(f"{part} {value:.2f}" for part, value in breakdown.parts.items())
            print(f"{case.name:7} {prefix:6} {breakdown.step:6.1f} ms: {parts}", flush=True)
    for engine in engines:
        engine.stop()
    path = result.write("step", metrics)
    plot(found, path.with_suffix(".png"))
    print(f"wrote {path} and its plot")


if __name__ == "__main__":
    main()
