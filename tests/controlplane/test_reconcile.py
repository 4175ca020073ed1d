"""One operator and the objects that it makes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from testbed import wait
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.world import OWNED, SECONDS, World, fake, spec

pytestmark = pytest.mark.usefixtures("operator")


def names(world: World, kind: str, name: str = "chat") -> set[str]:
    return {item["metadata"]["name"] for item in world.owned(kind, name)}


def test_an_oasis_deployment_becomes_ready_and_says_where_it_serves(world: World) -> None:
    world.apply("chat", spec())
    world.until_ready("chat")
    status = world.status("chat")
    revision = status["revision"]
    assert status["endpoint"] == f"http://chat-router.{world.namespace}.svc:8080/v1"
    assert names(world, "deployments") == {
        f"chat-{revision}-prefill",
        f"chat-{revision}-decode",
        f"chat-{revision}-router",
    }
    assert names(world, "services") == {"chat-prefill", "chat-decode", "chat-router"}


def test_without_prefill_there_is_one_role(world: World) -> None:
    world.apply("chat", spec(prefill=None))
    world.until_ready("chat")
    assert world.condition("chat", "PrefillReady") == {}
    assert names(world, "services") == {"chat-decode", "chat-router"}


def test_deleting_it_removes_everything(world: World) -> None:
    world.apply("chat", spec())
    world.until_ready("chat")
    world.kubectl("delete", "odep", "chat", "--timeout=30s")
    wait.until(
        lambda: not world.owned(f"{OWNED},pods", "chat"), "removal of all that it owned", SECONDS
    )


def patched(world: World, kind: str, name: str, *operations: dict[str, Any]) -> None:
    world.kubectl("patch", kind, name, "--type=json", "-p", json.dumps(operations))


def add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def applied_by_others(world: World) -> None:
    """What a tool does that takes over all that it finds: every field is its own too."""
    items = world.owned(OWNED, "chat")
    for item in items:
        del item["metadata"]["resourceVersion"], item["metadata"]["uid"]
    whole = {"apiVersion": "v1", "kind": "List", "items": items}
    apply = ["apply", "--server-side", "--force-conflicts", "--field-manager=others", "-f", "-"]
    world.kubectl(*apply, manifest=whole)


def writers(world: World) -> set[str]:
    """Who owns something of the content of the objects."""
    found = world.get(OWNED, "-l", "oasiskv.io/deployment=chat", "--show-managed-fields")
    return {
        entry["manager"]
        for item in found["items"]
        for entry in item["metadata"]["managedFields"]
        for part in ("f:spec", "f:data", "f:rules", "f:subjects")
        # Of a Deployment others keep the labels of the pod template.
        if entry["fieldsV1"].get(part, {}).keys() - {"f:template"}
    }


def test_what_somebody_else_writes_is_undone_as_a_whole(
    world: World, operator: OperatorProcess
) -> None:
    world.apply("chat", spec())
    world.until_ready("chat")
    before = world.content("chat")
    decode = f"chat-{world.status('chat')['revision']}-decode"
    pod = "/spec/template/spec"
    applied_by_others(world)
    patched(
        world,
        "deployment",
        decode,
        add("/metadata/annotations/oasiskv.io~1wanted-replicas", "7"),
        add("/spec/paused", True),
        add("/spec/replicas", 3),
        add("/spec/strategy", {"type": "Recreate"}),
        add(f"{pod}/containers/0/image", "evil:1"),
        add(f"{pod}/containers/0/env/-", {"name": "EVIL", "value": "1"}),
        add(f"{pod}/containers/-", {"name": "side", "image": "side:1"}),
    )
    patched(
        world,
        "pdb",
        "chat-decode",
        {"op": "remove", "path": "/spec/maxUnavailable"},
        add("/spec/minAvailable", 1),
    )
    patched(world, "service", "chat-router", add("/spec/selector/evil", "1"))
    patched(world, "service", "chat-decode", add("/spec/sessionAffinity", "ClientIP"))
    patched(world, "networkpolicy", "chat-decode", add("/spec/policyTypes/-", "Egress"))
    # A right that the operator does not have, and so must not give.
    secrets = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    patched(world, "role", "chat-router", add("/rules/-", secrets))
    wait.until(lambda: world.content("chat") == before, "what it was before", SECONDS)
    wait.until(lambda: writers(world) == {"oasiskv-operator"}, "the operator's fields", SECONDS)
    world.until_ready("chat")
    operator.until_resynced()
    writes = operator.writes()
    operator.until_resynced()
    assert operator.writes() == writes


def test_labels_of_others_and_a_restart_that_they_asked_for_stay(
    world: World, operator: OperatorProcess
) -> None:
    world.apply("chat", spec())
    world.until_ready("chat")
    decode = f"chat-{world.status('chat')['revision']}-decode"
    world.kubectl("label", "deployment", decode, "team=a")
    world.kubectl("rollout", "restart", f"deployment/{decode}")
    operator.until_resynced(1)
    live = world.get("deployment", decode)
    assert live["metadata"]["labels"]["team"] == "a"
    restarted = "kubectl.kubernetes.io/restartedAt"
    assert restarted in live["spec"]["template"]["metadata"]["annotations"]


def test_a_deleted_object_comes_back(world: World) -> None:
    world.apply("chat", spec())
    world.until_ready("chat")
    uid = world.get("service", "chat-router")["metadata"]["uid"]
    world.kubectl("delete", "service", "chat-router")
    wait.until(
        lambda: world.get("service", "chat-router").get("metadata", {}).get("uid", uid) != uid,
        "a new Service",
        SECONDS,
    )


def test_more_replicas_are_not_a_new_revision(world: World) -> None:
    slow = fake("load-delay", "2s")
    world.apply("chat", spec(decode=slow))
    world.until_ready("chat")
    before, ready = world.status("chat")["revision"], world.condition("chat", "Ready")
    world.apply("chat", spec(decode={"replicas": 3, **slow}))
    world.until_condition("chat", "DecodeReady", "False", "Starting")
    adding = world.until_condition("chat", "Ready", "True", "AddingPods")
    world.until_ready("chat")
    status = world.status("chat")
    assert status["revision"] == before
    # At no time did it say that those which were there do not serve.
    assert adding["lastTransitionTime"] == ready["lastTransitionTime"]
    assert world.condition("chat", "Ready") == ready | {"observedGeneration": 2}
    assert status["decode"] == {
        "replicas": 3,
        "readyReplicas": 3,
        "desiredReplicas": 3,
        "ready": "3/3",
    }


def test_the_operator_leaves_no_mark_of_its_own_on_the_resource(world: World) -> None:
    world.apply("chat", spec())
    world.until_ready("chat")
    metadata = world.get("odep", "chat")["metadata"]
    assert "finalizers" not in metadata
    assert set(metadata["annotations"]) == {"kubectl.kubernetes.io/last-applied-configuration"}


def test_it_stays_small(world: World, operator: OperatorProcess) -> None:
    world.apply("chat", spec())
    world.until_ready("chat")
    assert operator.metric("process_resident_memory_bytes") < 150e6


def test_an_override_reaches_the_pod(world: World) -> None:
    override = {"spec": {"containers": [{"name": "engine", "env": [{"name": "X", "value": "1"}]}]}}
    world.apply("chat", spec(decode={"podTemplate": override}))
    world.until_ready("chat")
    (pod,) = world.pods("chat", "decode")
    assert {"name": "X", "value": "1"} in pod["spec"]["containers"][0]["env"]


def test_the_engines_configuration_is_mounted(world: World) -> None:
    world.apply("chat", spec())
    world.until_ready("chat")
    (pod,) = world.pods("chat", "prefill")
    volume = next(v for v in pod["spec"]["volumes"] if v["name"] == "config")
    config = world.get("configmap", volume["configMap"]["name"])
    assert "role: prefill" in config["data"]["engine.yaml"]
    assert json.dumps(pod["spec"]["containers"][0]["command"]).count("/etc/oasiskv/engine.yaml")


def test_its_pods_meet_the_restricted_standard(world: World) -> None:
    enforced = "pod-security.kubernetes.io/enforce=restricted"
    world.plane.kubectl("label", "namespace", world.namespace, enforced)
    world.apply("chat", spec())
    world.until_ready("chat")
