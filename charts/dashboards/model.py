"""Dashboards in a few words, and as the JSON that Grafana reads (schema version 39, Grafana 10)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

GRID = 24
HEIGHT = 8
STAT_HEIGHT = 4
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
RATE = "[$__rate_interval]"

Json = dict[str, Any]


@dataclass(frozen=True)
class Query:
    """PromQL, and the legend of its series; ``{{label}}`` is one's label."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One picture. ``about`` says how to read it. ``unit`` is Grafana's; ``limit`` draws a line."""

    title: str
    queries: Sequence[Query]
    about: str
    unit: str = "short"
    kind: Literal["timeseries", "stat", "table", "heatmap"] = "timeseries"
    width: int = 8
    limit: float | None = None
    top: float | None = None
    """Upper end of the axis, 1 for a share."""
    stacked: bool = False

    @property
    def height(self) -> int:
        return STAT_HEIGHT if self.kind == "stat" else HEIGHT

    def json(self, number: int, x: int, y: int) -> Json:
        """The panel at a place of the grid."""
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.about,
            "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "targets": [self._target(index, query) for index, query in enumerate(self.queries)],
            "fieldConfig": {"defaults": self._defaults(), "overrides": []},
            "options": self._options(),
            **({"transformations": _COLUMNS} if self.kind == "table" else {}),
        }

    def _target(self, index: int, query: Query) -> Json:
        now = self.kind in ("stat", "table")
        shape = {"table": "table", "heatmap": "heatmap"}.get(self.kind, "time_series")
        return {
            "refId": chr(ord("A") + index),
            "datasource": SOURCE,
            "expr": query.expr,
            "legendFormat": query.legend or "__auto",
            "instant": now,
            "range": not now,
            "format": shape,
        }

    def _defaults(self) -> Json:
        defaults: Json = {"unit": self.unit, "min": 0 if self.kind == "timeseries" else None}
        if self.top is not None:
            defaults["max"] = self.top
        if self.kind == "timeseries":
            defaults["custom"] = {
                "fillOpacity": 30 if self.stacked else 0,
                "showPoints": "never",
                "stacking": {"mode": "normal" if self.stacked else "none"},
                "thresholdsStyle": {"mode": "line" if self.limit is not None else "off"},
            }
        if self.limit is not None:
            steps = [{"color": "green", "value": None}, {"color": "red", "value": self.limit}]
            defaults["thresholds"] = {"mode": "absolute", "steps": steps}
        return {key: value for key, value in defaults.items() if value is not None}

    def _options(self) -> Json:
        if self.kind == "timeseries":
            return {"legend": {"displayMode": "list", "placement": "bottom"}}
        if self.kind == "stat":
            return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value"}
        return {}


_HIDDEN = ("Time", "__name__", "instance", "job", "container")
_COLUMNS = [
    {
        "id": "organize",
        "options": {
            "excludeByName": dict.fromkeys(
                ("Time", "__name__", "instance", "job", "container"), True
            )
        },
    }
]


@dataclass(frozen=True)
class Row:
    """Panels under a heading, placed from left to right."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Variable:
    """A choice at the top, of a label's values."""

    name: str
    query: str

    def json(self) -> Json:
        return {
            "name": self.name,
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": self.query, "refId": self.name},
            "refresh": 2,
            "sort": 1,
        }


@dataclass(frozen=True)
class Dashboard:
    """One dashboard. ``uid`` is in its address, and never changes."""

    uid: str
    title: str
    rows: Sequence[Row]
    variables: Sequence[Variable] = ()

    def json(self) -> Json:
        source = {"name": "datasource", "type": "datasource", "query": "prometheus"}
        return {
            "uid": self.uid,
            "title": f"OasisKV / {self.title}",
            "tags": ["oasiskv"],
            "schemaVersion": 39,
            "editable": False,
            "refresh": "30s",
            "time": {"from": "now-1h", "to": "now"},
            "templating": {"list": [source, *(item.json() for item in self.variables)]},
            "links": [
                {
                    "type": "dashboards",
                    "tags": ["oasiskv"],
                    "title": "OasisKV",
                    "asDropdown": True,
                    "includeVars": True,
                    "keepTime": True,
                }
            ],
            "panels": list(self._panels()),
        }

    def _panels(self) -> Iterator[Json]:
        number, y = 1, 0
        for row in self.rows:
            place = {"x": 0, "y": y, "w": GRID, "h": 1}
            yield {"id": number, "type": "row", "title": row.title, "gridPos": place, "panels": []}
            number, y, x, height = number + 1, y + 1, 0, 0
            for panel in row.panels:
                if x + panel.width > GRID:
                    x, y, height = 0, y + height, 0
                yield panel.json(number, x, y)
                number, x, height = number + 1, x + panel.width, max(height, panel.height)
            y += height
