"""Golden manifests of the examples: ``python -m tests.unit.operator.golden`` writes them anew.

A change in them is a change of running pods when an operator is upgraded: write them anew only
where that is meant.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.desired.build import Desired, Images, desired
from oasis_operator.desired.placement import Placement
from tests.unit.operator.make import alone, built, by_kubelet

ROOT = Path(__file__).parents[3]
FOLDER = Path(__file__).parent / "golden"
EXAMPLES = tuple(sorted((ROOT / "examples").glob("*.yaml")))
IMAGES = Images(engine="oasiskv/runtime:golden", router="oasiskv/router:golden")


def example(path: Path) -> OasisDeployment:
    body: dict[str, Any] = yaml.safe_load(path.read_text())
    body["metadata"] |= {"namespace": "default", "uid": "golden", "generation": 1}
    return OasisDeployment.parse(body)


def golden_files() -> dict[str, str]:
    """File name -> content: every example, and that with devices once more by claim."""
    out = {path.name: _text(built(example(path), IMAGES)) for path in EXAMPLES}
    od = example(ROOT / "examples" / "gpu.yaml")
    claimed = {component: Placement("dra", "") for component in by_kubelet(od)}
    return out | {
        "gpu-claimed.yaml": _text(
            desired(od, IMAGES, lambda revision: alone(od, revision), claimed)
        )
    }


def _text(objects: Desired) -> str:
    return yaml.safe_dump_all(objects.objects, sort_keys=False, width=100)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in golden_files().items():
        (FOLDER / name).write_text(text)
        print(f"wrote {name}")


if __name__ == "__main__":
    main()
