"""What goes wrong is told by condition and Event, with what is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from testbed import wait
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.world import OWNED, SECONDS, Manifest, World, fake, spec, waiting

pytestmark = pytest.mark.usefixtures("operator")

NEVER = fake("never-ready")


def told_by_event(world: World, text: str) -> None:
    wait.until(
        lambda: any(text in event["message"] for event in world.events("chat")),
        f"an Event with {text!r}",
        SECONDS,
    )


def test_a_model_that_is_not_there_is_told_with_its_path(world: World) -> None:
    path = "/models/none"
    world.apply("chat", spec(model={"image": {"path": path}}, prefill=NEVER))
    pod = world.until_pod("chat", "prefill")
    sentence = f"There is no model folder {path}: mount it there or correct spec.model."
    ended = {"terminated": {"exitCode": 78, "reason": "Error", "message": sentence}}
    world.patch_pod_status(pod, waiting({"waiting": {"reason": "CrashLoopBackOff"}}, ended))
    found = world.until_condition("chat", "PrefillReady", "False", "ConfigurationRejected")
    assert sentence in found["message"]
    assert path in world.until_condition("chat", "Ready", "False")["message"]
    told_by_event(world, path)


def test_an_image_that_cannot_be_pulled_is_named(world: World) -> None:
    world.apply("chat", spec(decode=NEVER))
    pod = world.until_pod("chat", "decode")
    state = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    world.patch_pod_status(pod, waiting(state))
    found = world.until_condition("chat", "DecodeReady", "False", "ImagePullFailed")
    assert "runtime:test" in found["message"]
    told_by_event(world, "runtime:test")


def test_a_crash_is_told_with_where_to_read_on_and_the_next_one_is_counted(world: World) -> None:
    world.apply("chat", spec(decode=NEVER))
    pod = world.until_pod("chat", "decode")
    command = f"kubectl -n {world.namespace} logs --previous {pod['metadata']['name']} -c engine"
    for crashes in (1, 2):
        ended = {"terminated": {"exitCode": 1, "reason": "Error"}}
        world.patch_pod_status(pod, waiting({"running": {}}, ended))
        found = world.until_condition("chat", "DecodeReady", "False", "Crashed")
        assert command in found["message"]

        def told(crashes: int = crashes) -> bool:
            events = [e for e in world.events("chat") if e["reason"] == "Crashed"]
            return [event["count"] for event in events] == [crashes]

        wait.until(told, f"one Event for {crashes} crashes", SECONDS)
        world.patch_pod_status(pod, waiting({"running": {}}))
        world.until_condition("chat", "DecodeReady", "False", "Starting")


def test_a_pod_that_no_node_can_take_is_told_with_the_schedulers_words(world: World) -> None:
    world.apply("chat", spec(decode={"nodeSelector": {"gpu": "none"}}))
    found = world.until_condition("chat", "DecodeReady", "False", "Unschedulable")
    assert "node affinity/selector" in found["message"]
    told_by_event(world, "node affinity/selector")


def test_a_prefill_that_never_becomes_ready_is_told_by_name(world: World) -> None:
    world.apply("chat", spec(prefill=NEVER, updates={"progressDeadlineSeconds": 30}))
    pod = world.until_pod("chat", "prefill")
    found = world.until_condition(
        "chat", "PrefillReady", "False", "ProgressDeadlineExceeded", timeout=90
    )
    assert pod["metadata"]["name"] in found["message"]
    assert "GET /health" in found["message"]


@pytest.fixture
def abandoned(world: World) -> Iterator[str]:
    """Name and label of a node without a kubelet: pods are bound to it and nobody starts them."""
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    capacity = {"cpu": "8", "memory": "64Gi", "pods": "10"}
    node: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": world.namespace, "labels": {"only": world.namespace}},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": [ready]},
    }
    world.kubectl("create", "-f", "-", manifest=node)
    try:
        # Admission taints every new node until the controller has seen it ready.
        wait.until(
            lambda: not world.get("node", world.namespace)["spec"].get("taints"),
            "a node without taints",
            60,
        )
        yield world.namespace
    finally:
        # Pods of other tests must not come here.
        world.kubectl("delete", "node", world.namespace)


def test_a_volume_that_the_kubelet_cannot_mount_is_told_in_its_words(
    world: World, abandoned: str
) -> None:
    world.apply(
        "chat",
        spec(
            model={"hostPath": {"path": "/srv/none"}},
            decode={"nodeSelector": {"only": abandoned}},
        ),
    )
    pod = world.until_pod("chat", "decode")
    complaint = "MountVolume.SetUp failed: hostPath type check failed: /srv/none is not a directory"
    when = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    world.kubectl(
        "create",
        "-f",
        "-",
        manifest={
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "complaint"},
            "type": "Warning",
            "reason": "FailedMount",
            "message": complaint,
            "lastTimestamp": when,
            "involvedObject": {
                "kind": "Pod",
                "name": pod["metadata"]["name"],
                "namespace": world.namespace,
                "uid": pod["metadata"]["uid"],
            },
        },
    )
    found = world.until_condition("chat", "DecodeReady", "False", "PodNotStarted")
    assert complaint in found["message"]
    told_by_event(world, "/srv/none")


def test_an_override_that_the_api_server_refuses_is_told(world: World) -> None:
    override = {"spec": {"containers": [{"name": "engine", "imagePullPolicy": "Sometimes"}]}}
    world.apply("chat", spec(decode={"podTemplate": override}))
    found = world.until_condition("chat", "Ready", "False", "ApplyRefused")
    assert "imagePullPolicy" in found["message"]
    told_by_event(world, "imagePullPolicy")
    world.apply("chat", spec())
    world.until_ready("chat")


def test_a_field_that_the_api_server_drops_in_silence_is_told(world: World) -> None:
    # Kubernetes 1.34 has ImageVolume off, and what is left of the volume is an empty folder.
    world.apply("chat", spec(model={"imageVolume": {"reference": "models/tiny:1"}}))
    found = world.until_condition("chat", "Ready", "False", "ApplyRefused")
    assert "did not keep spec.template.spec.containers.0.volumeMounts" in found["message"]
    assert "spec.template.spec.volumes" in found["message"]


def test_any_text_reaches_the_pod(world: World) -> None:
    text = "\U0001f980 \u0085\u2028 \\ud83e"
    override = {"metadata": {"annotations": {"note": text}}}
    world.apply("chat", spec(decode={"podTemplate": override}))
    pod = world.until_pod("chat", "decode")
    assert pod["metadata"]["annotations"]["note"] == text


def theirs(kind: str, api_version: str, name: str, **content: Any) -> Manifest:
    """An object that the user made, with a name that the operator needs."""
    metadata = {"name": name, "labels": {"app": "theirs"}}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def test_objects_of_somebody_else_are_not_taken_over_and_not_deleted(world: World) -> None:
    items = [
        theirs("Service", "v1", "chat-decode", spec={"ports": [{"port": 1}]}),
        theirs("ServiceAccount", "v1", "chat-router"),
        theirs("PodDisruptionBudget", "policy/v1", "chat-prefill", spec={"maxUnavailable": 1}),
    ]
    for item in items:
        world.kubectl("create", "-f", "-", manifest=item)

    def said() -> list[Manifest]:
        found = [world.get(item["kind"], item["metadata"]["name"]) for item in items]
        for body in found:
            # The cluster's controllers write a status.
            body.pop("status", None)
            del body["metadata"]["resourceVersion"]
        return found

    before = said()
    world.apply("chat", spec())
    found = world.until_condition("chat", "Ready", "False", "NameTaken")
    told = "PodDisruptionBudget chat-prefill, Service chat-decode, ServiceAccount chat-router"
    assert told in found["message"]
    told_by_event(world, "delete or rename them, or rename the OasisDeployment")
    # The rest is there, but for what would run with the account.
    world.until_condition("chat", "DecodeReady", "True")
    assert world.condition("chat", "RouterReady")["reason"] == "Creating"
    world.kubectl("delete", "odep", "chat")
    wait.until(lambda: not world.owned(OWNED, "chat"), "the end of what it owned", SECONDS)
    assert said() == before


def test_a_name_that_somebody_else_gives_up_is_used(world: World) -> None:
    ports = [{"name": "http", "port": 1}]
    world.kubectl(
        "create",
        "-f",
        "-",
        manifest=theirs("Service", "v1", "chat-router", spec={"ports": ports}),
    )
    world.apply("chat", spec())
    found = world.until_condition("chat", "Ready", "False", "NameTaken")
    assert "Service chat-router; delete or rename it" in found["message"]
    world.kubectl("delete", "service", "chat-router")
    world.until_ready("chat")


def test_what_an_earlier_namesake_left_is_waited_for(world: World) -> None:
    def hold(finalizers: list[str] | None) -> None:
        patch = json.dumps({"metadata": {"finalizers": finalizers}})
        world.kubectl("patch", "service", "chat-router", "--type=merge", "-p", patch)

    world.apply("chat", spec())
    wait.until(lambda: bool(world.get("service", "chat-router")), "the Service", SECONDS)
    before = world.get("service", "chat-router")["metadata"]["uid"]
    hold(["test.oasiskv.io/hold"])
    world.kubectl("delete", "odep", "chat")
    world.apply("chat", spec())
    found = world.until_condition("chat", "Ready", "False", "WaitingForDeletion")
    assert "Service chat-router" in found["message"]
    hold(None)
    world.until_ready("chat")
    assert world.get("service", "chat-router")["metadata"]["uid"] != before


def test_engines_on_several_nodes_need_what_makes_them(world: World) -> None:
    engine = {"tensorParallelSize": 2, "nodes": 2}
    world.apply("chat", spec(prefill=None, engine=engine))
    found = world.until_condition("chat", "Ready", "False", "LeaderWorkerSetNotServed")
    assert "install LeaderWorkerSet, or set spec.engine.nodes to 1" in found["message"]
    assert world.owned("pods,deployments", "chat") == []
    world.apply("chat", spec(prefill=None))
    world.until_ready("chat")


def test_one_broken_deployment_does_not_hold_up_another(world: World) -> None:
    override = {"spec": {"containers": [{"name": "engine", "imagePullPolicy": "Sometimes"}]}}
    world.apply("broken", spec(decode={"podTemplate": override}))
    world.until_condition("broken", "Ready", "False", "ApplyRefused")
    world.apply("fine", spec())
    world.until_ready("fine")


def test_an_alarm_is_told_once(world: World, operator: OperatorProcess) -> None:
    world.apply("chat", spec(decode={"nodeSelector": {"gpu": "none"}}))
    world.until_condition("chat", "DecodeReady", "False", "Unschedulable")
    told_by_event(world, "node affinity/selector")
    operator.until_resynced(3)
    told = [e for e in world.events("chat") if e["reason"] == "Unschedulable"]
    assert len(told) == 1
