"""Writes the results into bench/README.md from bench/results: ``python bench/readme.py``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parent
README = BENCH / "README.md"
HEADING = "## Results\n"
NOTHING = "No result file is checked in yet; the commands above make them.\n"


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


def main() -> None:
    README.write_text(with_results(README.read_text()))
    print(f"wrote {README.name}")


if __name__ == "__main__":
    main()
