"""Another revision while requests come, and none that notices."""

from __future__ import annotations

from pathlib import Path

from testbed import model, wait
from tests.e2e.conftest import Stage, with_roles
from tests.e2e.load import ROUND, Load
from tests.e2e.served import READY_SECONDS, Manifest


def switching(budget_tokens: int) -> Manifest:
    manifest = with_roles(decode_replicas=1)
    manifest["spec"]["updates"]["strategy"] = "Switch"
    manifest["spec"]["kv"]["budgetTokens"] = budget_tokens
    return manifest


def test_an_update_fails_no_request(stage: Stage, tmp_path: Path) -> None:
    served = stage.serve(switching(1024))
    before = {pod.uid for pod in served.pods()}
    with Load(served, model.make(), tmp_path) as load:
        served.apply(switching(512))

        def updated() -> bool:
            now = {pod.uid for pod in served.pods()}
            return served.condition("Ready").get("status") == "True" and not now & before

        wait.until(updated, "the new pods alone", 2 * READY_SECONDS, every=0.5)
        load.until_rounds(1)
        answered, failed = load.finish()
    assert failed == 0, load.words()
    assert answered >= 2 * ROUND
