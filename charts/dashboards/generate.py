"""Writes the dashboards into the chart: ``python -m charts.dashboards.generate``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from charts.dashboards.autoscaler import AUTOSCALER
from charts.dashboards.deployment import DEPLOYMENT
from charts.dashboards.fleet import FLEET
from charts.dashboards.tiers import TIERS

FOLDER = Path(__file__).parents[1] / "oasiskv" / "dashboards"
DASHBOARDS = (FLEET, DEPLOYMENT, TIERS, AUTOSCALER)


def generated() -> Mapping[Path, str]:
    """The content of every file."""
    return {
        FOLDER / f"{item.uid.removeprefix('oasiskv-')}.json": json.dumps(item.json(), indent=1)
        + "\n"
        for item in DASHBOARDS
    }


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for path, text in generated().items():
        path.write_text(text)
        print(f"wrote {path.name} ({len(text)} bytes)")


if __name__ == "__main__":
    main()
