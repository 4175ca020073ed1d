"""Alerts and dashboards of the chart on a Prometheus that scrapes a deployment which serves."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from examples.ask import Prometheus
from testbed import versions, wait
from testbed.problem import Problem
from tests.e2e.conftest import CHECKOUT, NAMESPACE
from tests.e2e.served import Served

CHART = CHECKOUT / "charts" / "oasiskv"
DASHBOARDS = sorted((CHART / "dashboards").glob("*.json"))
SECONDS = 60
VARIABLES = {
    "$__rate_interval": "5m",
    "$namespace": NAMESPACE,
    "$deployment": "demo",
}
EMPTY_IN_PEACE = {
    "Conditions that are False",
    "Pods that are missing",
    "Router errors",
    "Errors",
    "Fallbacks",
    # The deployment of the tests has a fixed number of pods.
    "Decided on",
    "Decisions by reason",
    "ScalingActive",
    # A prefill pod only sends, so that it knows the speed of its interface, which none says here.
    "Link out, share",
}
"""Panels of what may never have happened: a series with labels begins when it is first counted."""


def panels(dashboard: Path) -> Iterator[tuple[str, list[str]]]:
    """Title and queries of each panel, about the deployment of the tests."""
    for panel in json.loads(dashboard.read_text())["panels"]:
        if queries := [target["expr"] for target in panel.get("targets", [])]:
            yield panel["title"], [_about_the_demo(query) for query in queries]


def _about_the_demo(query: str) -> str:
    for variable, value in VARIABLES.items():
        query = query.replace(variable, value)
    return query


def test_every_panel_shows_something(disaggregated: Served, prometheus: Prometheus) -> None:
    disaggregated.client().completions.create(
        model=versions.MODEL_NAME, prompt="one two three " * 800, max_tokens=24, temperature=0
    )

    def empty() -> list[str]:
        return [
            f"{dashboard.stem}: {title}"
            for dashboard in DASHBOARDS
            for title, queries in panels(dashboard)
            if title not in EMPTY_IN_PEACE and not any(map(prometheus.query, queries))
        ]

    try:
        wait.until(lambda: not empty(), "data in every panel", SECONDS, every=1)
    except Problem as late:
        raise AssertionError(f"{late}: {empty()}") from late


@pytest.mark.usefixtures("disaggregated")
def test_every_alert_is_evaluated_and_none_fires(prometheus: Prometheus) -> None:
    def rules() -> Mapping[str, Mapping[str, Any]]:
        with urllib.request.urlopen(f"{prometheus.url}/api/v1/rules", timeout=10) as answer:
            groups = json.load(answer)["data"]["groups"]
        return {rule["name"]: rule for group in groups for rule in group["rules"]}

    wait.until(
        lambda: bool(rules()) and all(rule["health"] == "ok" for rule in rules().values()),
        "rules that are evaluated",
        SECONDS,
        every=1,
    )
    firing = {name for name, rule in rules().items() if rule["state"] == "firing"}
    assert firing == set()
