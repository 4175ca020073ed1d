from __future__ import annotations

import pytest

from oasis_operator.reconcile.observed import ObjectKey
from oasis_operator.reconcile.plan import plan
from tests.unit.operator.golden import FOLDER, Released, golden_files, made, released

GOLDEN = golden_files()
EXAMPLES = {"demo.yaml", "single.yaml", "gpu.yaml", "gpu-claimed.yaml"}
"""Of the first release."""
RELEASED = tuple(released())


def test_there_are_examples() -> None:
    assert set(GOLDEN) >= EXAMPLES


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_an_operator_of_this_version_changes_no_manifest_of_an_example(name: str) -> None:
    assert GOLDEN[name] == (FOLDER / name).read_text(), (
        "manifests changed, and with them what new revisions run; if that is meant, run "
        "`python -m tests.unit.operator.golden`"
    )


def test_there_are_manifests_of_a_release() -> None:
    assert {found.name for found in RELEASED} >= {f"0.1.0/{name}" for name in EXAMPLES}


@pytest.mark.parametrize("found", RELEASED, ids=lambda found: found.name)
def test_an_upgrade_from_any_release_starts_no_pod_anew(found: Released) -> None:
    live = {ObjectKey.of(item): item for item in found.objects}
    now = made(found.name, found.resource)
    todo = plan(now.objects, now.rollout, live)
    assert not {key for key in todo.delete if key.kind in ("Deployment", "ConfigMap")}
    applied = {ObjectKey.of(item): item for item in todo.apply}
    for key, before in live.items():
        after = applied.get(key, before)
        if key.kind == "Deployment":
            assert after["spec"]["template"] == before["spec"]["template"]
            assert after["spec"]["replicas"] == before["spec"]["replicas"]
        if key.kind == "ConfigMap":
            assert after["data"] == before["data"]
    assert not {key for key in applied.keys() - live.keys() if key.kind == "Deployment"}
