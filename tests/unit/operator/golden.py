"""Golden manifests of the examples: ``python -m tests.unit.operator.golden`` writes them anew.

A change in them is a change of running pods when an operator is upgraded: write them anew only
where that is meant.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.desired.build import Images
from tests.unit.operator.make import built

ROOT = Path(__file__).parents[3]
EXAMPLES = tuple(sorted((ROOT / "examples").glob("*.yaml")))
IMAGES = Images(engine="oasiskv/runtime:golden", router="oasiskv/router:golden")


def example(path: Path) -> OasisDeployment:
    body: dict[str, Any] = yaml.safe_load(path.read_text())
    body["metadata"] |= {"namespace": "default", "uid": "golden", "generation": 1}
    return OasisDeployment.parse(body)


def golden_file(path: Path) -> Path:
    return Path(__file__).parent / "golden" / path.name


def manifests(path: Path) -> str:
    objects = built(example(path), IMAGES).objects
    return yaml.safe_dump_all(objects, sort_keys=False, width=100)


def main() -> None:
    for path in EXAMPLES:
        golden_file(path).parent.mkdir(exist_ok=True)
        golden_file(path).write_text(manifests(path))
        print(f"wrote {golden_file(path).relative_to(ROOT)}")


if __name__ == "__main__":
    main()
