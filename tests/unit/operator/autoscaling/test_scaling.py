"""What the operator makes of a decision."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.autoscaling.decide import Decision, Notice, RoleDecision
from oasis_operator.autoscaling.history import History
from oasis_operator.autoscaling.reason import Reason
from oasis_operator.desired.metadata import Component, workers_of
from oasis_operator.reconcile.observed import ObjectKey, Observed
from oasis_operator.reconcile.pods import PodView
from oasis_operator.reconcile.scaling import (
    changes,
    external_replicas,
    live_replicas,
    replicas_decided,
    role_pods,
    scale_targets,
    scaling_condition,
)
from oasis_operator.reconcile.scaling_spec import with_replicas
from tests.unit.operator.make import built, deployment, named, pod, stored

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
REVISION = "0123abcd"


def decision(prefill: int, decode: int, **fields: Any) -> Decision:
    return Decision(
        decode=RoleDecision(decode, Reason.LOAD, "20 requests"),
        prefill=RoleDecision(prefill, Reason.QUEUE, "9 prompts wait"),
        history=History(),
        **fields,
    )


def seen(name: str, seconds: float, *, ready: bool, **fields: Any) -> PodView:
    since = (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    body = pod(name, component="decode", ready=ready, created=since, **fields)
    for condition in body["status"]["conditions"]:
        condition["lastTransitionTime"] = since
    return PodView.of(body)


def test_pods_count_from_when_they_became_ready_or_stopped_being_so() -> None:
    observed = Observed(
        pods=(
            seen("old", 900, ready=True),
            seen("young", 5, ready=True),
            seen("late", 40, ready=False, phase="Pending"),
            seen("later", 70, ready=False, phase="Pending"),
        )
    )
    found = role_pods(observed, REVISION, Component.DECODE, 4, NOW)
    assert found.replicas == 4
    assert found.ready_seconds == {"old": 900.0, "young": 5.0}
    assert (found.placed, found.pending_seconds) == (2, 70.0)


RUNNING = {"name": "engine", "state": {"running": {}}}
PULLING = {"name": "engine", "state": {"waiting": {"reason": "ContainerCreating"}}}
CRASHED = {
    "name": "engine",
    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    "lastState": {"terminated": {"exitCode": 1}},
}
NO_NODE = [{"type": "PodScheduled", "status": "False"}]


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Running", "containerStatuses": [RUNNING]},
        {"phase": "Running", "containerStatuses": [CRASHED]},
        {"phase": "Pending", "initContainerStatuses": [RUNNING], "containerStatuses": [PULLING]},
    ],
    ids=["loads", "crashed", "has an init container"],
)
def test_a_pod_that_runs_is_not_pending(status: dict[str, Any]) -> None:
    observed = Observed(pods=(seen("loading", 4000, ready=False, **status),))
    found = role_pods(observed, REVISION, Component.DECODE, 1, NOW)
    assert (found.placed, found.pending_seconds) == (1, 0.0)


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Pending", "containerStatuses": [PULLING]},
        {"phase": "Pending", "conditions": NO_NODE},
    ],
    ids=["its image is pulled", "no node takes it"],
)
def test_a_pod_that_does_not_run_is_pending(status: dict[str, Any]) -> None:
    observed = Observed(pods=(seen("stuck", 4000, ready=False, **status),))
    found = role_pods(observed, REVISION, Component.DECODE, 1, NOW)
    assert (found.placed, found.pending_seconds) == (0, 4000.0)


def test_a_pod_that_ended_for_good_is_neither_placed_nor_pending() -> None:
    observed = Observed(pods=(seen("evicted", 4000, ready=False, phase="Failed"),))
    found = role_pods(observed, REVISION, Component.DECODE, 1, NOW)
    assert (found.placed, found.pending_seconds) == (0, 0.0)


def test_an_engine_on_several_nodes_is_pending_until_all_of_its_pods_run() -> None:
    leader = seen("leader", 4000, ready=False)
    worker = seen("worker", 4000, ready=False, phase="Pending")
    group = [
        replace(leader, group="a"),
        replace(worker, group="a", component=workers_of(Component.DECODE)),
    ]
    found = role_pods(Observed(pods=tuple(group)), REVISION, Component.DECODE, 1, NOW)
    assert (found.placed, found.pending_seconds) == (0, 4000.0)


def test_pods_of_other_revisions_and_roles_do_not_count() -> None:
    observed = Observed(pods=(seen("old", 900, ready=True),))
    assert role_pods(observed, "ffffffff", Component.DECODE, 1, NOW).ready_seconds == {}
    assert role_pods(observed, REVISION, Component.PREFILL, 1, NOW).ready_seconds == {}


def test_only_roles_that_change_are_told_and_with_the_reason() -> None:
    found = changes(decision(2, 3), {Component.PREFILL: 2, Component.DECODE: 1})
    assert [(change.component, change.reason) for change in found] == [(Component.DECODE, "Load")]
    assert found[0].told.reason == "Autoscaled"
    assert found[0].told.message == "decode from 1 to 3 pods (Load): 20 requests"


def test_a_decision_names_the_pods_of_both_roles() -> None:
    assert replicas_decided(decision(2, 3)) == {Component.PREFILL: 2, Component.DECODE: 3}


def test_scaling_is_active_while_it_decides() -> None:
    found = scaling_condition(decision(1, 1))
    assert (found.status, found.reason, found.alarming) == ("True", "Deciding", False)


def test_a_held_decision_is_not_active_and_says_why() -> None:
    found = scaling_condition(decision(1, 1, held=Notice("NoData", "no data about requests")))
    assert (found.status, found.reason, found.alarming) == ("False", "NoData", True)


def test_what_comes_by_itself_alarms_nobody() -> None:
    held = Notice("WarmingUp", "no data yet", alarming=False)
    found = scaling_condition(decision(1, 1, held=held))
    assert (found.status, found.reason, found.alarming) == ("False", "WarmingUp", False)


def test_what_no_number_of_pods_repairs_is_told() -> None:
    notice = Notice("BudgetReached", "raise it")
    found = scaling_condition(decision(1, 1, notices=(notice,)))
    assert (found.status, found.reason, found.message) == ("True", "BudgetReached", "raise it")


def test_of_several_notices_none_is_kept_back() -> None:
    notices = (Notice("BudgetReached", "raise it"), Notice("LowRecall", "raise the other"))
    found = scaling_condition(decision(1, 1, notices=notices))
    assert found.reason == "BudgetReached"
    assert found.message == "raise it. LowRecall: raise the other"


def external(replicas: int | None = None) -> tuple[OasisDeployment, Observed]:
    """A deployment that is scaled from outside, with its objects as the API server has them."""
    od = deployment(autoscaling={"owner": "external"}, decode={"replicas": 2})
    objects = stored(built(od))
    if replicas is not None:
        objects[ObjectKey("OasisRole", "chat-decode")]["spec"] = {"replicas": replicas}
    return od, Observed(objects)


def test_an_external_owner_gets_a_target_for_each_role_without_replicas() -> None:
    od, _ = external()
    target = named(built(od), "OasisRole", "chat-decode")
    assert "spec" not in target
    assert named(built(od), "OasisRole", "chat-prefill")
    assert not [item for item in built(deployment()).objects if item["kind"] == "OasisRole"]


def test_until_somebody_scales_a_role_it_stays_as_it_is() -> None:
    assert external_replicas(*external()) == {Component.PREFILL: 1, Component.DECODE: 2}


def test_what_somebody_scaled_a_role_to_is_what_it_gets() -> None:
    assert external_replicas(*external(5)) == {Component.PREFILL: 1, Component.DECODE: 5}


def test_a_target_tells_how_many_pods_there_are_and_which() -> None:
    od, observed = external(5)
    found = {target.component: target for target in scale_targets(observed)}
    revision = built(od).rollout.target
    assert found["decode"].replicas == 5
    assert found["prefill"].replicas is None
    assert found["decode"].wanted_status["selector"] == (
        f"oasiskv.io/deployment=chat,oasiskv.io/component=decode,oasiskv.io/revision={revision}"
    )


def test_a_start_finds_the_replicas_that_were_decided_before() -> None:
    od = deployment(decode={"replicas": 2})
    decided = with_replicas(od, {Component.PREFILL: 3, Component.DECODE: 7})
    revision = built(od).rollout.target
    found = live_replicas(od, Observed(stored(built(decided))), revision)
    assert found == {Component.PREFILL: 3, Component.DECODE: 7}
