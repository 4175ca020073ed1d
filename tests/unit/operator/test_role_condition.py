from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from oasis_operator.api.spec import Spec
from oasis_operator.desired.metadata import Component
from oasis_operator.desired.model import sources
from oasis_operator.reconcile.conditions import Draft
from oasis_operator.reconcile.observed import DeploymentView
from oasis_operator.reconcile.pods import PodView, Problem
from oasis_operator.reconcile.ready_condition import ready_condition, router_condition
from oasis_operator.reconcile.role_condition import role_condition

SINCE = datetime(2026, 1, 1, tzinfo=UTC)
"""Pods that have not been ready from before then on are late."""
LOADED = sources(
    Spec.model_validate(
        {
            "model": {"hostPath": {"path": "/srv/tiny"}},
            "kv": {
                "prediction": {
                    "method": "draft",
                    "heads": {"kind": "eagle", "model": {"pvc": {"claimName": "weights"}}},
                }
            },
        }
    )
)


def view(component: Component = Component.PREFILL, **changes: Any) -> DeploymentView:
    complete = DeploymentView(
        revision="0123abcd",
        component=component,
        images={},
        allocation=None,
        wanted=1,
        ready=1,
        available=1,
        updated=1,
        current=True,
        total=1,
        established=True,
        deadline_exceeded=False,
        failure="",
    )
    return replace(complete, **changes)


def waiting_pod(problem: Problem | None = None, name: str = "p-1", **changes: Any) -> PodView:
    pod = PodView(
        name=name,
        uid=f"uid-{name}",
        component="prefill",
        revision="0123abcd",
        ready=False,
        terminating=False,
        starting=False,
        has_run=False,
        problem=problem,
        created=SINCE,
        ready_changed=SINCE,
    )
    return replace(pod, **changes)


def condition(
    found: DeploymentView | None, *pods: PodView, warnings: dict[str, str] | None = None
) -> Draft:
    return role_condition(Component.PREFILL, found, pods, warnings or {}, LOADED, SINCE)


NOT_READY = view(ready=0, available=0)


def test_all_pods_ready_is_true() -> None:
    found = condition(view())
    assert (found.type, found.status, found.reason) == ("PrefillReady", "True", "AllReady")


def test_a_deployment_that_is_not_there_yet_is_being_created() -> None:
    assert condition(None).reason == "Creating"


def test_pods_that_load_are_starting_and_no_alarm() -> None:
    found = condition(NOT_READY, waiting_pod())
    assert (found.status, found.reason, found.alarming) == ("False", "Starting", False)
    assert "0 of 1" in found.message


def test_a_rejected_configuration_is_told_with_the_users_own_path() -> None:
    problem = Problem("ConfigurationRejected", "/mnt/model has no config.json: put it there")
    found = condition(NOT_READY, waiting_pod(problem))
    assert found.reason == "ConfigurationRejected"
    assert "/mnt/model has no config.json: put it there" in found.message
    assert "(/mnt/model is spec.model.hostPath.path /srv/tiny)" in found.message
    assert "p-1" in found.message
    assert found.alarming


def test_draft_heads_that_are_rejected_are_told_as_such() -> None:
    problem = Problem("ConfigurationRejected", "/mnt/heads has no config.json: put it there")
    found = condition(NOT_READY, waiting_pod(problem))
    assert "(/mnt/heads is spec.kv.prediction.heads.model.pvc weights)" in found.message


def test_a_rejected_configuration_is_told_with_the_fields_of_the_spec() -> None:
    problem = Problem(
        "ConfigurationRejected",
        "tiers.fast_bytes is 1048576 and 16 request(s) of 2048 tokens select 2097152 bytes of "
        "pages; raise it to that, or lower selection.budget_tokens or max_num_seqs",
    )
    found = condition(NOT_READY, waiting_pod(problem))
    assert found.message.endswith(
        "p-1: spec.kv.fastSize is 1048576 and 16 request(s) of 2048 tokens select 2097152 bytes of "
        "pages; raise it to that, or lower spec.kv.budgetTokens or spec.engine.maxNumSeqs"
    )


def test_a_volume_that_is_not_there_is_told_in_the_kubelets_words() -> None:
    warnings = {"uid-p-1": "hostPath type check failed: /srv/tiny is not a directory"}
    found = condition(NOT_READY, waiting_pod(starting=True), warnings=warnings)
    assert found.reason == "PodNotStarted"
    assert "/srv/tiny is not a directory" in found.message
    assert "draft heads: spec.kv.prediction.heads.model.pvc weights" in found.message
    assert found.alarming


def test_a_pod_that_never_becomes_ready_is_named_after_the_deadline() -> None:
    found = condition(view(ready=0, available=0, deadline_exceeded=True), waiting_pod())
    assert found.reason == "ProgressDeadlineExceeded"
    assert "p-1" in found.message
    assert "/health" in found.message
    assert found.alarming


def test_one_of_the_pods_that_were_made_later_is_late_too() -> None:
    """The Deployment has no deadline for pods that are added to those that were complete once."""
    late = waiting_pod(name="late", ready_changed=SINCE - timedelta(seconds=1))
    found = condition(view(wanted=3, ready=1, available=1), late, waiting_pod(name="new"))
    assert found.reason == "ProgressDeadlineExceeded"
    assert "late" in found.message
    assert "new" not in found.message.split("on port")[1]


def test_what_is_known_says_more_than_the_deadline() -> None:
    late = view(ready=0, available=0, deadline_exceeded=True)
    found = condition(late, waiting_pod(Problem("Unschedulable", "no node: no GPU")))
    assert found.reason == "Unschedulable"


def test_pods_that_cannot_be_created_say_why() -> None:
    found = condition(view(ready=0, available=0, failure="exceeded quota"))
    assert found.reason == "PodsNotCreated"
    assert "exceeded quota" in found.message


def test_pods_that_go_do_not_count() -> None:
    found = condition(NOT_READY, waiting_pod(Problem("Crashed", "x"), terminating=True))
    assert found.reason == "Starting"


def test_the_same_pods_in_another_order_make_the_same_condition() -> None:
    one = waiting_pod(Problem("Crashed", "x"), "a")
    other = waiting_pod(Problem("Unschedulable", "y"), "b")
    assert condition(NOT_READY, one, other) == condition(NOT_READY, other, one)


ROUTER = view(Component.ROUTER)


def test_a_router_without_engines_waits_for_them() -> None:
    found = router_condition(view(Component.ROUTER, available=0), [])
    assert (found.status, found.reason) == ("False", "WaitingForEngines")


def test_a_router_with_a_problem_tells_it() -> None:
    broken = waiting_pod(Problem("ImagePullFailed", "router:1 cannot be pulled"))
    found = router_condition(view(Component.ROUTER, available=0), [broken])
    assert found.reason == "ImagePullFailed"
    assert found.alarming


def test_ready_is_all_parts_ready() -> None:
    parts = [condition(view()), router_condition(ROUTER, [])]
    assert ready_condition(parts, as_before=False).status == "True"


def test_the_first_part_that_is_not_ready_says_why() -> None:
    broken = condition(NOT_READY, waiting_pod(Problem("Unschedulable", "no GPU")))
    found = ready_condition([broken, router_condition(None, [])], as_before=False)
    assert (found.status, found.reason) == ("False", "Unschedulable")
    assert found.message.startswith("PrefillReady: ")


def test_a_part_that_somebody_must_act_on_says_more_than_one_that_only_needs_time() -> None:
    starting = condition(NOT_READY, waiting_pod())
    rejected = Draft("DecodeReady", "False", "ConfigurationRejected", "too small", alarming=True)
    found = ready_condition([starting, rejected, router_condition(None, [])], as_before=False)
    assert (found.reason, found.message) == ("ConfigurationRejected", "DecodeReady: too small")


def test_one_pod_is_not_all_of_many() -> None:
    assert condition(view()).message == "the prefill pod is ready"
    two = view(wanted=2, ready=2, available=2, updated=2, total=2)
    assert condition(two).message == "all 2 prefill pods are ready"


STARTING = Draft("DecodeReady", "False", "Starting", "1 of 2 decode pods are ready")


def test_pods_that_are_added_do_not_end_ready_and_are_told() -> None:
    found = ready_condition([STARTING, router_condition(ROUTER, [])], as_before=True)
    assert (found.status, found.reason) == ("True", "AddingPods")
    assert STARTING.message in found.message


def test_without_the_pods_that_there_were_it_is_not_ready() -> None:
    found = ready_condition([STARTING, router_condition(ROUTER, [])], as_before=False)
    assert (found.status, found.reason) == ("False", "Starting")
