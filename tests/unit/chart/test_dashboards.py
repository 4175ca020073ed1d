from __future__ import annotations

import json
from pathlib import Path

import pytest

from charts.dashboards.generate import DASHBOARDS, FOLDER, generated
from charts.dashboards.model import GRID, Dashboard
from charts.dashboards.promql import share
from tests.unit.chart.rules import promtool


@pytest.mark.parametrize("path", sorted(generated()), ids=lambda path: path.stem)
def test_the_charts_files_are_up_to_date(path: Path) -> None:
    assert path.read_text() == generated()[path], (
        "stale: run `python -m charts.dashboards.generate`"
    )


def test_the_chart_has_no_other_dashboards() -> None:
    assert set(FOLDER.iterdir()) == set(generated())


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda item: item.uid)
def test_panels_do_not_overlap_and_fit_the_grid(dashboard: Dashboard) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard.json()["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= GRID
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda item: item.uid)
def test_every_panel_has_a_name_of_its_own_and_says_how_to_read_it(dashboard: Dashboard) -> None:
    for row in dashboard.rows:
        titles = [panel.title for panel in row.panels]
        assert len(set(titles)) == len(titles)
        assert all(panel.about.endswith(".") and panel.queries for panel in row.panels)


def test_addresses_are_unique_and_short_enough_for_grafana() -> None:
    uids = [item.uid for item in DASHBOARDS]
    assert len(set(uids)) == len(uids)
    assert all(len(uid) <= 40 for uid in uids)


@pytest.mark.parametrize("path", sorted(generated()), ids=lambda path: path.stem)
def test_every_query_asks_the_chosen_source(path: Path) -> None:
    for panel in json.loads(path.read_text())["panels"]:
        for part in (panel, *panel.get("targets", [])):
            assert part.get("datasource", {"uid": "${datasource}"})["uid"] == "${datasource}"


@pytest.mark.parametrize(
    ("counted", "expected"), [({}, 0.0), ({'steps{mode="dense"}': "0+30x20"}, 0.25)]
)
def test_a_share_of_what_was_never_counted_is_0(
    counted: dict[str, str], expected: float, tmp_path: Path
) -> None:
    series = {'steps{mode="sparse"}': "0+90x20", **counted}
    part, whole = 'sum(rate(steps{mode="dense"}[5m]))', "sum(rate(steps[5m]))"
    sample = {"labels": "{}", "value": expected}
    asked = {"expr": share(part, whole), "eval_time": "15m", "exp_samples": [sample]}
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [asked],
    }
    file = tmp_path / "test.json"
    file.write_text(json.dumps({"evaluation_interval": "1m", "tests": [test]}))
    done = promtool("test", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
