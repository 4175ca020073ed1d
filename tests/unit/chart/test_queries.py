"""Every query of rules, dashboards, documentation and operator names what exists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from charts.dashboards.promql import DECODE, HERE, PREFILL
from oasis_operator.metrics import OperatorMetrics
from oasis_operator.signals.queries import (
    fleet_queries,
    queries,
    scaling_queries,
    state_queries,
)
from oasis_runtime.contract import Metric
from testbed import versions
from tests.unit.chart.parsed import Parser
from tests.unit.chart.render import CHART
from tests.unit.chart.rules import alerts
from tests.unit.chart.series import EXPOSITIONS, declared_labels, labels_by_name
from tests.unit.docs.test_docs import DOCS, table
from tests.unit.operator.make import deployment

DASHBOARDS = sorted((CHART / "dashboards").glob("*.json"))
PAGES = sorted([*DOCS.glob("*.md"), *(DOCS / "runbooks").glob("*.md")])
_VARIABLE = re.compile(r"^label_values\((?P<series>.+), (?P<label>\w+)\)$")
_PLACEHOLDER = re.compile(r"\{\{ ?\$?(?:labels\.)?(\w+) ?\}\}")


def in_dashboard(path: Path) -> Iterator[tuple[str, str]]:
    """Queries and their legends."""
    for panel in json.loads(path.read_text())["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"], target["legendFormat"]


def in_page(path: Path) -> Iterator[str]:
    """Lines of blocks marked as PromQL, and of those indented blocks that hold queries."""
    text = path.read_text()
    for block in re.findall(r"^```promql\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield from (line for line in block.splitlines() if line and not line.startswith("#"))
    for line in re.findall(r"^    (\S.*)$", text, re.MULTILINE):
        if re.match(r"(sum|histogram_quantile|rate|max|min|count)\b.*\(", line):
            # S stands for a selector in docs/concepts.md.
            yield line.replace("{S", '{namespace="default"')


@pytest.mark.parametrize("name", sorted(alerts()))
def test_rules_name_what_exists(parser: Parser, name: str) -> None:
    assert parser.problems(alerts()[name]["expr"]) == []


@pytest.mark.parametrize("name", sorted(alerts()))
def test_the_words_of_an_alert_use_labels_that_it_has(parser: Parser, name: str) -> None:
    rule = alerts()[name]
    used = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    assert used <= parser.labels(rule["expr"])


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboards_name_what_exists(parser: Parser, path: Path) -> None:
    problems = {expr: parser.problems(expr) for expr, _ in in_dashboard(path)}
    assert {expr: found for expr, found in problems.items() if found} == {}


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_legends_use_labels_that_their_series_have(parser: Parser, path: Path) -> None:
    for expr, legend in in_dashboard(path):
        assert set(_PLACEHOLDER.findall(legend)) <= parser.labels(expr), expr


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_choices_of_a_dashboard_are_labels_that_exist(parser: Parser, path: Path) -> None:
    for variable in json.loads(path.read_text())["templating"]["list"]:
        if variable["type"] != "query":
            continue
        found = _VARIABLE.match(variable["query"]["query"])
        assert found is not None, variable
        assert parser.problems(found["series"]) == []
        assert found["label"] in parser.labels(found["series"])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_documentation_names_what_exists(parser: Parser, path: Path) -> None:
    problems = {query: parser.problems(query) for query in in_page(path)}
    assert {query: found for query, found in problems.items() if found} == {}


def texts(value: Any) -> Iterator[str]:
    """The strings in dataclasses that were made dictionaries."""
    if isinstance(value, str):
        yield value
    else:
        for inner in value.values():
            yield from texts(inner)


@pytest.mark.parametrize(
    "asked",
    [queries(deployment(), "0123abcd"), fleet_queries(deployment(), "0123abcd")],
    ids=["state", "scale"],
)
def test_the_operator_asks_for_what_exists(parser: Parser, asked: Any) -> None:
    found = list(texts(asdict(asked)))
    assert len(found) > 5
    assert {query: bad for query in found if (bad := parser.problems(query))} == {}


def test_the_autoscaler_dashboard_shows_every_number_that_scaling_asks_for() -> None:
    shown = [expr for expr, _ in in_dashboard(CHART / "dashboards/autoscaler.json")]
    asked = set(texts(asdict(scaling_queries(DECODE, PREFILL))))
    assert {query for query in asked if not any(query in expr for expr in shown)} == set()


def test_the_autoscaler_dashboard_measures_nothing_of_engines_that_the_operator_does_not() -> None:
    """A latency or a share of another kind would tell of another load than the one decided by."""
    asked = {
        *texts(asdict(scaling_queries(DECODE, PREFILL))),
        *texts(asdict(state_queries(HERE, DECODE))),
    }
    for expr, _ in in_dashboard(CHART / "dashboards/autoscaler.json"):
        rest = expr
        for query in sorted(asked, key=len, reverse=True):
            rest = rest.replace(query, "")
        assert not re.search(r"vllm:|oasis_(?!deployment_|desired_|scale_)", rest), expr


def test_every_metric_of_engine_and_operator_is_shown_somewhere() -> None:
    shown = " ".join(expr for path in DASHBOARDS for expr, _ in in_dashboard(path))
    operator = {family.name for family in OperatorMetrics().registry.collect()}
    ours = {metric.value for metric in Metric} | {n for n in operator if n.startswith("oasis_")}
    assert {name for name in ours if name not in shown} == set()


def test_the_table_of_metrics_has_the_labels_that_the_engine_gives() -> None:
    rows = table(DOCS / "engine.md", "Metrics")
    documented = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[1])) for row in rows}
    declared = declared_labels()
    for name, labels in documented.items():
        assert labels == declared.get(name, declared.get(f"{name}_sum")), name


@pytest.mark.parametrize("path", sorted(EXPOSITIONS.glob("*.prom")), ids=lambda path: path.stem)
def test_what_was_recorded_is_of_the_pinned_versions(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    expected = f"# recorded with vllm {versions.VLLM}, vllm-router {versions.VLLM_ROUTER}"
    assert first == expected, "run `python -m tests.unit.chart.record`"


def test_recorded_engines_are_those_of_this_code() -> None:
    recorded = (EXPOSITIONS / "decode.prom").read_text()
    for name in declared_labels():
        assert f"# TYPE {re.sub('_(bucket|sum|count)$', '', name)} " in recorded, (
            f"{name} was not recorded: run `python -m tests.unit.chart.record`"
        )


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("oasis_pages_selected", "no series"),
        ('oasis_fast_slots{phase="used"}', "no label phase"),
        ('oasis_fast_slots{state="free"}', "never has"),
        ('rate(oasis_fallbacks_total{reason!~"short_context|typo"}[5m])', "never has"),
        ("sum by (role) (oasis_exports_outstanding)", "the label role"),
        ("up / on (role) up", "the label role"),
        ('{__name__=~"vllm_router_nothing.*"}', "no series"),
    ],
)
def test_a_wrong_name_is_found(parser: Parser, query: str, told: str) -> None:
    assert any(told in problem for problem in parser.problems(query))


def test_what_is_no_promql_is_found(parser: Parser) -> None:
    with pytest.raises(AssertionError, match="parse error"):
        parser.problems("sum(rate(up[5m])")


def test_labels_follow_aggregations_and_replacements(parser: Parser) -> None:
    assert parser.labels("sum by (pod) (oasis_fast_slots)") == {"pod"}
    replaced = 'label_replace(oasis_deployment_condition, "team", "$1", "type", "(.+)")'
    assert parser.labels(replaced) == labels_by_name()["oasis_deployment_condition"] | {"team"}
    assert "engine" in labels_by_name()["oasis_fast_slots"]
    assert "engine" not in parser.labels("sum without (engine) (oasis_fast_slots)")
