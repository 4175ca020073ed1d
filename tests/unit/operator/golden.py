"""Golden manifests of the examples: ``python -m tests.unit.operator.golden`` writes them anew.

A change in them is a change of what new revisions run: write them anew only where that is meant.

``python -m tests.unit.operator.golden release`` keeps them for the present version, with the
OasisDeployments that they were made from; of an example that came later, those of the version in
which it came. These are never written again: an operator of any later version must leave their pods
alone.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.desired.build import Desired, Images, desired
from oasis_operator.desired.metadata import Manifest
from oasis_operator.desired.placement import Placement
from tests.unit.operator.make import alone, by_kubelet

ROOT = Path(__file__).parents[3]
FOLDER = Path(__file__).parent / "goldens"
RELEASES = FOLDER / "releases"
IMAGES = Images(engine="oasiskv/runtime:golden", router="oasiskv/router:golden")
CLAIMED = "-claimed.yaml"
"""Ends the name of an example whose devices are claimed."""


@dataclass(frozen=True)
class Released:
    """What somebody applied, and what an operator of some version made of it."""

    name: str
    resource: Manifest
    objects: tuple[Manifest, ...]


def examples() -> dict[str, Manifest]:
    """File name -> resource: every example, and that with devices once more by claim."""
    out = {}
    for path in sorted((ROOT / "examples").glob("*.yaml")):
        body: Manifest = yaml.safe_load(path.read_text())
        body["metadata"] |= {"namespace": "default", "uid": "golden", "generation": 1}
        out[path.name] = body
    return out | {"gpu" + CLAIMED: out["gpu.yaml"]}


def made(name: str, resource: Manifest) -> Desired:
    """What this operator makes of an example."""
    od = OasisDeployment.parse(resource)
    placed = by_kubelet(od)
    if name.endswith(CLAIMED):
        placed = {component: Placement("dra", "") for component in placed}
    return desired(od, IMAGES, lambda revision: alone(od, revision), placed)


def golden_files() -> dict[str, str]:
    """File name -> content."""
    return {name: _text(made(name, body).objects) for name, body in examples().items()}


def released() -> Iterator[Released]:
    """All that was ever kept."""
    for file in sorted(RELEASES.glob("*/*.yaml")):
        resource, *objects = yaml.safe_load_all(file.read_text())
        yield Released(f"{file.parent.name}/{file.name}", resource, tuple(objects))


def keep(version: str) -> None:
    """Writes those of the release's files that are not there; ``SystemExit`` if all are."""
    folder = RELEASES / version
    folder.mkdir(parents=True, exist_ok=True)
    fresh = {name: body for name, body in examples().items() if not (folder / name).exists()}
    if not fresh:
        sys.exit(f"the manifests of {version} are kept already, and are never written again")
    for name, body in fresh.items():
        (folder / name).write_text(_text((body, *made(name, body).objects)))


def _text(objects: tuple[Any, ...]) -> str:
    return yaml.safe_dump_all(objects, sort_keys=False, width=100)


def main() -> None:
    if sys.argv[1:] == ["release"]:
        keep(importlib.metadata.version("oasiskv"))
        return
    FOLDER.mkdir(exist_ok=True)
    for name, text in golden_files().items():
        (FOLDER / name).write_text(text)
        print(f"wrote {name}")


if __name__ == "__main__":
    main()
