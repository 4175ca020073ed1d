from __future__ import annotations

import pytest

from oasis_operator.desired.pod_maker import makes_pods, template_of
from oasis_operator.reconcile.observed import ObjectKey
from oasis_operator.reconcile.plan import plan
from tests.unit.operator.golden import FOLDER, Released, golden_files, made, released

GOLDEN = golden_files()
RELEASED = tuple(released())


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_an_operator_of_this_version_changes_no_manifest_of_an_example(name: str) -> None:
    assert GOLDEN[name] == (FOLDER / name).read_text(), (
        "manifests changed, and with them what new revisions run; if that is meant, run "
        "`python -m tests.unit.operator.golden`"
    )


def test_every_example_has_manifests_of_the_newest_release() -> None:
    kept: dict[str, set[str]] = {}
    for found in RELEASED:
        version, _, name = found.name.partition("/")
        kept.setdefault(version, set()).add(name)
    newest = max(kept, key=lambda version: [int(part) for part in version.split(".")])
    assert kept[newest] >= set(GOLDEN), "run `python -m tests.unit.operator.golden release`"


@pytest.mark.parametrize("found", RELEASED, ids=lambda found: found.name)
def test_an_upgrade_from_any_release_starts_no_pod_anew(found: Released) -> None:
    live = {ObjectKey.of(item): item for item in found.objects}
    now = made(found.name, found.resource)
    todo = plan(now.objects, now.rollout, live)
    assert not {key for key in todo.delete if makes_pods(key.kind) or key.kind == "ConfigMap"}
    applied = {ObjectKey.of(item): item for item in todo.apply}
    for key, before in live.items():
        after = applied.get(key, before)
        if makes_pods(key.kind):
            assert template_of(after) == template_of(before)
            assert after["spec"]["replicas"] == before["spec"]["replicas"]
        if key.kind == "ConfigMap":
            assert after["data"] == before["data"]
    assert not {key for key in applied.keys() - live.keys() if makes_pods(key.kind)}
