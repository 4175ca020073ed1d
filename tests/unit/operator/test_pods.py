from __future__ import annotations

from typing import Any

import pytest

from oasis_operator.reconcile.pods import MESSAGE_LIMIT, PodView, complaint_of
from tests.unit.operator.make import pod


def container(
    *, state: dict[str, Any] | None = None, last: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {"name": "engine", "image": "runtime:1", "state": state or {}, "lastState": last or {}}


def problem(**status: Any) -> tuple[str, str]:
    found = PodView.of(pod(**status)).problem
    assert found is not None
    return found.reason, found.message


def test_a_ready_pod_has_no_problem() -> None:
    ended = {"terminated": {"exitCode": 1, "message": "once"}}
    view = PodView.of(pod(ready=True, containerStatuses=[container(last=ended)]))
    assert view.problem is None


def test_an_engine_that_rejects_its_configuration_is_quoted() -> None:
    ended = {"terminated": {"exitCode": 78, "message": "/models/x is not there: mount it\n"}}
    for state, last in ((ended, {}), ({"waiting": {"reason": "CrashLoopBackOff"}}, ended)):
        reason, message = problem(containerStatuses=[container(state=state, last=last)])
        assert reason == "ConfigurationRejected"
        assert message == "/models/x is not there: mount it"


@pytest.mark.parametrize("waiting", ["ErrImagePull", "ImagePullBackOff", "InvalidImageName"])
def test_an_image_that_cannot_be_pulled_is_named(waiting: str) -> None:
    state = {"waiting": {"reason": waiting, "message": "not found"}}
    reason, message = problem(containerStatuses=[container(state=state)])
    assert reason == "ImagePullFailed"
    assert "runtime:1" in message
    assert "not found" in message


def test_a_missing_secret_is_named() -> None:
    state = {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "k" not found'}}
    assert problem(containerStatuses=[container(state=state)]) == (
        "ContainerNotCreated",
        'secret "k" not found',
    )


def test_an_unschedulable_pod_says_what_the_scheduler_says() -> None:
    conditions = [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes: no GPU"}]
    reason, message = problem(phase="Pending", conditions=conditions)
    assert reason == "Unschedulable"
    assert "0/3 nodes: no GPU" in message


def test_a_pod_that_the_kubelet_refused_has_the_kubelets_reason() -> None:
    reason, _ = problem(phase="Failed", reason="TopologyAffinityError", message="cannot align")
    assert reason == "TopologyAffinityError"


def test_too_little_memory_comes_with_the_remedy() -> None:
    last = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    reason, message = problem(containerStatuses=[container(last=last)])
    assert reason == "OutOfMemory"
    assert "resources.limits.memory" in message


def test_of_a_crash_the_end_of_the_log_is_told() -> None:
    log = "x" * 5000 + " ValueError: bad"
    last = {"terminated": {"exitCode": 1, "message": log}}
    reason, message = problem(containerStatuses=[container(last=last)])
    assert reason == "Crashed"
    assert message.endswith("ValueError: bad")
    assert len(message) < MESSAGE_LIMIT + 200


def test_of_a_crash_the_command_that_shows_more_is_told() -> None:
    last = {"terminated": {"exitCode": 139}}
    _, message = problem(containerStatuses=[container(last=last)])
    assert message.endswith("kubectl -n team logs --previous chat-0123abcd-prefill-x -c engine")


def test_an_init_container_is_looked_at_first() -> None:
    init = container(state={"terminated": {"exitCode": 3, "message": "no disk"}})
    _, message = problem(initContainerStatuses=[init], containerStatuses=[container()])
    assert "no disk" in message


def test_an_init_container_that_is_done_is_no_problem() -> None:
    init = container(state={"terminated": {"exitCode": 0}})
    view = PodView.of(pod(initContainerStatuses=[init], containerStatuses=[container()]))
    assert view.problem is None


@pytest.mark.parametrize(
    "statuses", [[], [container(state={"waiting": {"reason": "ContainerCreating"}})]]
)
def test_a_bound_pod_without_a_container_is_starting(statuses: list[Any]) -> None:
    assert PodView.of(pod(phase="Pending", containerStatuses=statuses)).starting
    assert not PodView.of(pod(phase="Running", containerStatuses=statuses)).starting


def warning(reason: str, message: str, minute: int) -> dict[str, Any]:
    when = f"2026-01-01T00:{minute:02}:00Z"
    return {"reason": reason, "message": message, "lastTimestamp": when}


def test_the_kubelets_last_warning_about_a_start_is_told_in_one_line() -> None:
    events = [
        warning("FailedMount", "MountVolume.SetUp failed:\n  /srv/b is not there", 2),
        warning("FailedMount", "MountVolume.SetUp failed: /srv/a is not there", 1),
    ]
    assert complaint_of(events) == "MountVolume.SetUp failed: /srv/b is not there"


def test_a_failing_probe_is_no_complaint_about_a_start() -> None:
    probe = warning("Unhealthy", "Startup probe failed: connection refused", 3)
    mount = warning("FailedMount", "MountVolume.SetUp failed", 1)
    assert complaint_of([probe]) == ""
    assert complaint_of([mount, probe]) == "MountVolume.SetUp failed"
