from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from oasis_operator.api.spec import Spec
from oasis_operator.autoscaling.recall import LEAST_AUDITS, LEAST_RECALL
from oasis_operator.reconcile import signal_conditions as limits
from tests.unit.chart.alert_cases import CASES
from tests.unit.chart.rules import FILES, alerts, failures, minutes, promtool
from tests.unit.docs.test_docs import table

ROOT = Path(__file__).parents[3]
RUNBOOKS = ROOT / "docs" / "runbooks"
SECTIONS = ["Meaning", "Impact", "Look here", "Fix"]


def test_prometheus_takes_every_rule() -> None:
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", *map(str, FILES))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", sorted(alerts()))
def test_an_alert_fires_when_it_should_and_only_then(name: str, tmp_path: Path) -> None:
    assert failures([case for case in CASES if case.alert == name], tmp_path) == ""


@pytest.mark.parametrize("fires", [True, False])
def test_every_alert_has_a_case_of_either_kind(fires: bool) -> None:
    assert {case.alert for case in CASES if case.fires is fires} == set(alerts())


@pytest.mark.parametrize("name", sorted(alerts()))
def test_every_alert_has_a_runbook_that_says_what_to_do(name: str) -> None:
    page = RUNBOOKS / f"{name}.md"
    assert alerts()[name]["annotations"]["runbook"] == str(page.relative_to(ROOT))
    lines = page.read_text().splitlines()
    assert lines[0] == f"# {name}"
    assert [line.removeprefix("## ") for line in lines if line.startswith("## ")] == SECTIONS


def test_every_runbook_has_an_alert() -> None:
    assert {page.stem for page in RUNBOOKS.glob("Oasis*.md")} == set(alerts())


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("OasisResidencyLow", f"< {limits.MIN_RESIDENT_RATIO}"),
        ("OasisRecallLow", f"< {LEAST_RECALL}"),
        ("OasisRecallLow", f">= {LEAST_AUDITS}"),
        ("OasisLatePages", f"> {limits.MAX_LATE_RATIO}"),
        ("OasisMostlyDense", f"> {limits.MAX_DENSE_SHARE}"),
        ("OasisMostlyDense", f"> {limits.MAX_FALLBACK_SHARE}"),
    ],
)
def test_an_alert_and_the_operators_condition_have_one_limit(name: str, limit: str) -> None:
    assert limit in alerts()[name]["expr"].splitlines()


def test_the_alert_and_the_operators_condition_take_the_same_fallbacks_for_no_fault() -> None:
    told = "|".join(sorted(limits.NO_FAULT))
    assert f'reason!~"{told}"' in alerts()["OasisMostlyDense"]["expr"]


def test_a_summary_says_where_and_descriptions_have_no_values_in_them() -> None:
    for rule in alerts().values():
        assert "{{" not in rule["annotations"]["description"]
        assert rule["labels"]["severity"] in ("warning", "critical")


def test_the_table_of_alerts_has_every_alert_and_its_severity() -> None:
    rows = table(ROOT / "docs" / "observability.md", "Alerts")
    documented = {row[0].split("`")[1]: row[1] for row in rows}
    assert documented == {name: rule["labels"]["severity"] for name, rule in alerts().items()}


@pytest.mark.parametrize("name", ["OasisPodsMissing", "OasisEngineUnreachable"])
def test_a_model_that_loads_within_the_default_deadline_is_no_alarm(name: str) -> None:
    deadline = Spec.model_fields["updates"].get_default(call_default_factory=True)
    assert 60 * minutes(alerts()[name]["for"]) > deadline.progress_deadline_seconds


def test_names_of_groups_are_unique() -> None:
    groups = [group for file in FILES for group in yaml.safe_load(file.read_text())["groups"]]
    names = [group["name"] for group in groups]
    assert len(names) == len(set(names))
