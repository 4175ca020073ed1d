"""Writes the figures of bench/README.md, README.md and docs/selection.md from bench/results.

python bench/readme.py
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parent
README = BENCH / "README.md"
HEADING = "## Results\n"
FRONT = BENCH.parent / "README.md"
SELECTION = BENCH.parent / "docs/selection.md"
FIGURES, FIGURES_END = "<!-- figures: bench/readme.py -->\n", "<!-- end of figures -->\n"
NOTHING = "No result file is checked in yet; the commands above make them.\n"


@dataclass(frozen=True)
class Figure:
    """A row of the first page: metrics of one result file, each with so many digits."""

    words: str
    bench: str
    metrics: tuple[str, ...]
    digits: int
    unit: str = ""

    def row(self, metrics: dict[str, float]) -> str:
        values = " / ".join(f"{metrics[name]:.{self.digits}f}{self.unit}" for name in self.metrics)
        return f"| {self.words} | {values} |"


SHOWN = (
    Figure(
        "Decode at 16K of context over stock vLLM: 1 request / 8 / all that fit the fast tier",
        "decode",
        ("speedup_16k_b1", "speedup_16k_b8", "speedup_16k_saturated"),
        1,
        "x",
    ),
    Figure(
        "Decode at 2K, where every request stays dense: 1 request",
        "decode",
        ("speedup_2k_b1",),
        2,
        "x",
    ),
    Figure(
        "Time to the first token of a second turn over stock vLLM's prefix cache",
        "decode",
        ("second_turn_ratio",),
        2,
        "x",
    ),
    Figure(
        "KV that a dense transfer of 6,000 tokens moves, over what moves at a budget of 1,024",
        "pd",
        ("bytes_ratio_6k",),
        1,
        "x",
    ),
    Figure(
        "Attention mass on what is attended to there, by audits of the answer",
        "pd",
        ("mass_recall_6k",),
        2,
    ),
    Figure(
        "First token of a 2K prompt: prefill and decode apart, less one engine for both",
        "pd",
        ("ttft_overhead_s_2k",),
        2,
        " s",
    ),
)


STEP_CASES = (
    ("2K", "2k_b1"),
    ("8K", "8k_b1"),
    ("16K", "16k_b1"),
    ("8K, 4 requests", "8k_b4"),
)
STEP_PARTS = (
    ("products with the weights of the layers", "weights"),
    ("the model's norms, rotary embedding, activations", "model"),
    ("attention", "attention"),
    ("logits and sampling", "sampling"),
    ("vLLM's scheduler, inputs and answers", "rest"),
    ("selection", "selection"),
    ("block tables over the fast tier", "tables"),
    ("summaries of new keys", "summaries"),
    ("begin and end of the engine's step", "begin_end"),
    ("audit", "audit"),
)
"""Rows and metrics of ``step.json``: the last five are ours alone."""


def step_rows(metrics: dict[str, float]) -> list[str]:
    """Milliseconds of a decode step by part: stock's and ours of each case."""

    def row(words: str, part: str) -> str:
        pairs = (
            " / ".join(f"{metrics[f'{prefix}{part}_ms_{case}']:.1f}" for prefix in ("stock_", ""))
            for _, case in STEP_CASES
        )
        return f"| {words} | {' | '.join(pairs)} |"

    head = " | ".join(name for name, _ in STEP_CASES)
    return [
        f"| ms, stock / ours | {head} |",
        "| --- " * (1 + len(STEP_CASES)) + "|",
        *(row(words, part) for words, part in STEP_PARTS),
        row("**a step, not taken apart**", "step"),
    ]


def section(result: dict[str, Any]) -> str:
    """One result file as text: where it comes from, and its metrics as a table."""
    host, versions = result["host"], result["versions"]
    software = ", ".join(f"{name} {version}" for name, version in versions.items())
    rows = [f"| `{name}` | {value:g} |" for name, value in result["metrics"].items()]
    return "\n".join(
        [
            f"### {result['bench']}",
            "",
            f"    {result['command']}",
            "",
            f"Commit {result['commit']}, {result['when'][:10]}, {host['cpus']} CPUs, "
            f"{host['memory'] / 2**30:.0f} GiB of memory; {software}.",
            "",
            "| metric | value |",
            "| --- | --- |",
            *rows,
            "",
        ]
    )


def with_results(text: str, results: Path = BENCH / "results") -> str:
    """``text`` with the part from the results heading on made anew from the folder's files."""
    kept, heading, _ = text.partition(HEADING)
    if not heading:
        raise ValueError(f"{README} has no line {HEADING.strip()!r}")
    found = [section(json.loads(file.read_text())) for file in sorted(results.glob("*.json"))]
    return f"{kept}{HEADING}\n" + ("\n".join(found) or NOTHING)


def with_figures(text: str, results: Path = BENCH / "results") -> str:
    """The first page's ``text`` with its rows made anew from the folder's files."""
    rows = [figure.row(_metrics(results, figure.bench)) for figure in SHOWN]
    return _between_marks(text, ["| | |", "| --- | --- |", *rows], FRONT)


def with_step(text: str, results: Path = BENCH / "results") -> str:
    """The ``text`` of docs/selection.md with its table of a step made anew."""
    return _between_marks(text, step_rows(_metrics(results, "step")), SELECTION)


def _metrics(results: Path, bench: str) -> dict[str, float]:
    found: dict[str, float] = json.loads((results / f"{bench}.json").read_text())["metrics"]
    return found


def _between_marks(text: str, rows: list[str], page: Path) -> str:
    before, mark, rest = text.partition(FIGURES)
    _, end, after = rest.partition(FIGURES_END)
    if not mark or not end:
        raise ValueError(f"{page} has no lines {FIGURES.strip()!r} and {FIGURES_END.strip()!r}")
    return f"{before}{mark}" + "\n".join(rows) + f"\n{end}{after}"


def main() -> None:
    README.write_text(with_results(README.read_text()))
    FRONT.write_text(with_figures(FRONT.read_text()))
    SELECTION.write_text(with_step(SELECTION.read_text()))
    print(f"wrote {README}, {FRONT} and {SELECTION}")


if __name__ == "__main__":
    main()
