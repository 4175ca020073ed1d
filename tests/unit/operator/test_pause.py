from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from oasis_operator.desired.build import Desired
from oasis_operator.desired.metadata import HASH_ANNOTATION, Component, Manifest
from oasis_operator.reconcile.conditions import DECODE_READY, Draft
from oasis_operator.reconcile.observed import DeploymentView, Observed
from oasis_operator.reconcile.pause import paused, with_pause
from oasis_operator.reconcile.plan import in_place
from oasis_operator.reconcile.pods import PodView
from tests.unit.operator.make import built, deployment, named, pod, progressed

NOW = datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC)
LATER = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
REFUSED: dict[str, Any] = {"phase": "Failed", "reason": "TopologyAffinityError"}
DESIRED: Desired = built(deployment(decode={"replicas": 3}))
REVISION = DESIRED.rollout.target


def observed(*statuses: dict[str, Any]) -> Observed:
    pods = [
        pod(f"p-{number}", component="decode", revision=REVISION, **status)
        for number, status in enumerate(statuses)
    ]
    return Observed(pods=tuple(map(PodView.of, pods)))


def decode(objects: Desired) -> Manifest:
    return named(objects, "Deployment", f"chat-{REVISION}-decode")


def test_refused_pods_are_not_replaced_at_once() -> None:
    found = paused(DESIRED, observed(REFUSED, {"ready": True}, {}), NOW)
    assert decode(found)["spec"]["replicas"] == 2
    others = [item for item in found.objects if item not in DESIRED.objects]
    assert others == [decode(found)]


def test_the_role_still_asks_for_all_of_them() -> None:
    item = decode(paused(DESIRED, observed(REFUSED), NOW))
    live = progressed(
        item | {"metadata": item["metadata"] | {"generation": 1}}, ready=True, established=True
    )
    view = DeploymentView.of(live)
    assert (view.wanted, view.complete) == (3, False)


def test_after_the_pause_they_are_tried_again() -> None:
    assert paused(DESIRED, observed(REFUSED), LATER) == DESIRED


def test_other_failures_cause_no_pause() -> None:
    assert paused(DESIRED, observed({"phase": "Failed", "reason": "Evicted"}), NOW) == DESIRED


def test_a_changed_count_is_written() -> None:
    item = decode(paused(DESIRED, observed(REFUSED), NOW))
    assert not in_place(item, decode(DESIRED))
    assert item["metadata"]["annotations"][HASH_ANNOTATION]


def test_the_condition_says_when() -> None:
    draft = Draft(DECODE_READY, "False", "TopologyAffinityError", "refused")
    found = with_pause(draft, Component.DECODE, REVISION, observed(REFUSED), NOW)
    assert found.message == "refused; no new pods before 00:00:20 UTC"
    assert with_pause(draft, Component.DECODE, REVISION, observed(REFUSED), LATER) == draft
