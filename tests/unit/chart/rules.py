"""The chart's rules, and promtool, which tests them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from testbed import programs
from tests.unit.chart.render import CHART

FILES = sorted((CHART / "rules").glob("*.yaml"))
INTERVAL = "1m"

Rule = dict[str, Any]


@cache
def promtool_path() -> Path:
    """Built where there is none."""
    return programs.find(["promtool"])["promtool"]


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [promtool_path(), *arguments], capture_output=True, text=True, check=False
    )


@cache
def alerts() -> dict[str, Rule]:
    """Every alert by its name."""
    groups = [group for file in FILES for group in yaml.safe_load(file.read_text())["groups"]]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def minutes(duration: str) -> int:
    """``15m`` -> 15."""
    assert duration.endswith("m"), duration
    return int(duration.removesuffix("m"))


@dataclass(frozen=True)
class Case:
    """What the world looks like, and whether an alert fires in it.

    ``series`` are values in promtool's notation, one a minute. An alert that fires has ``labels``
    besides its severity, and this ``summary``; neither is given where it must not fire.
    ``settled``: minutes until the expression itself is true, for one that looks back.
    """

    alert: str
    world: str
    series: dict[str, str]
    summary: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    settled: int = 1
    until: int = 60

    @property
    def fires(self) -> bool:
        return bool(self.summary)

    def test(self) -> dict[str, Any]:
        """One test of promtool: silent before its time, and fires, or not, after it."""
        rule = alerts()[self.alert]
        checks: list[dict[str, Any]] = []
        if self.fires:
            annotations = rule["annotations"] | {"summary": self.summary}
            fired = {"exp_labels": self.labels | rule["labels"], "exp_annotations": annotations}
            checks.append(self._check(minutes(rule["for"]) - 1, []))
            checks.append(self._check(minutes(rule["for"]) + self.settled, [fired]))
        else:
            checks += [self._check(at, []) for at in range(self.until // 2, self.until + 1)]
        series = [{"series": name, "values": values} for name, values in self.series.items()]
        return {
            "name": f"{self.alert}: {self.world}",
            "interval": INTERVAL,
            "input_series": series,
            "alert_rule_test": checks,
        }

    def _check(self, minute: int, expected: list[dict[str, Any]]) -> dict[str, Any]:
        return {"eval_time": f"{minute}m", "alertname": self.alert, "exp_alerts": expected}


def failures(cases: Sequence[Case], folder: Path) -> str:
    """What promtool says against them; empty if all hold."""
    file = folder / "test.json"
    content = {
        "rule_files": [str(path) for path in FILES],
        "evaluation_interval": INTERVAL,
        "tests": [case.test() for case in cases],
    }
    file.write_text(json.dumps(content))
    done = promtool("test", "rules", str(file))
    return "" if done.returncode == 0 else done.stdout + done.stderr
