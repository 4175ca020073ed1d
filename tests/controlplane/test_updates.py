"""A changed spec: what is there when, and what is not touched."""

from __future__ import annotations

import json

import pytest

from testbed import wait
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.world import OWNED, SECONDS, Manifest, World, fake, spec

pytestmark = pytest.mark.usefixtures("operator")

NEXT = {"budgetTokens": 512}
HOLD = "test.oasiskv.io/hold"
"""A finalizer: the pod ends, and stays until it is taken off."""


def serving(world: World) -> str:
    """The revision that the endpoint selects."""
    found = world.get("service", "chat-router")["spec"]["selector"]
    return str(found["oasiskv.io/revision"])


def until_serving(world: World, revision: str) -> None:
    wait.until(lambda: serving(world) == revision, f"{revision} to serve", SECONDS)


def of(world: World, revision: str, component: str = "") -> dict[str, Manifest]:
    """Pods of a revision by uid, those that are ending too."""
    return {
        pod["metadata"]["uid"]: pod
        for pod in world.owned("pods", "chat")
        if pod["metadata"]["labels"]["oasiskv.io/revision"] == revision
        and component in ("", pod["metadata"]["labels"]["oasiskv.io/component"])
    }


def staying(pods: dict[str, Manifest]) -> set[str]:
    return {uid for uid, pod in pods.items() if "deletionTimestamp" not in pod["metadata"]}


def until_gone(world: World, revision: str) -> None:
    def gone() -> bool:
        names = {item["metadata"]["name"] for item in world.owned("deployments,configmaps", "chat")}
        return not of(world, revision) and not any(revision in name for name in names)

    wait.until(gone, f"the end of revision {revision}", SECONDS)


def ready(world: World, **fields: object) -> str:
    """Has an OasisDeployment Ready; its revision."""
    world.apply("chat", spec(**fields))
    world.until_ready("chat")
    return str(world.status("chat")["revision"])


def target(world: World) -> str:
    return str(world.status("chat")["revision"])


def let_it_load(world: World, revision: str, component: str = "prefill") -> None:
    for pod in of(world, revision, component).values():
        world.kubectl("annotate", "pod", pod["metadata"]["name"], "test.oasiskv.io/never-ready-")


def held_router(world: World, revision: str) -> str:
    """The router pod, which from now on ends only when it is let go."""
    (pod,) = of(world, revision, "router").values()
    name = str(pod["metadata"]["name"])
    patch = {"metadata": {"finalizers": [HOLD]}}
    world.kubectl("patch", "pod", name, "--type=merge", "-p", json.dumps(patch))
    return name


def let_go(world: World, name: str) -> None:
    world.kubectl("patch", "pod", name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')


def test_nothing_of_the_old_revision_goes_before_the_new_one_is_ready(world: World) -> None:
    old = ready(world)
    before = staying(of(world, old))
    world.apply("chat", spec(kv=NEXT, prefill=fake("never-ready")))
    updating = world.until_condition("chat", "RouterReady", "False", "Updating")
    assert old in updating["message"]
    new = target(world)
    assert new != old
    wait.until(lambda: bool(of(world, new, "prefill")), "a new prefill pod", SECONDS)
    assert serving(world) == old
    assert staying(of(world, old)) == before
    let_it_load(world, new)
    until_serving(world, new)
    world.until_ready("chat")
    until_gone(world, old)


def known(router: Manifest) -> str:
    """The one revision whose pods a router looks for."""
    words = router["spec"]["containers"][0]["args"]
    (found,) = {w.partition("=")[2] for w in words if w.startswith("oasiskv.io/revision=")}
    return str(found)


def test_old_engines_stay_while_an_old_router_has_streams_to_finish(world: World) -> None:
    old = ready(world)
    engines = staying(of(world, old, "prefill")) | staying(of(world, old, "decode"))
    router = held_router(world, old)
    new = ready(world, kv=NEXT)
    assert serving(world) == new
    wait.until(lambda: not staying(of(world, old, "router")), "the old router to end", SECONDS)
    assert staying(of(world, old)) == engines
    for revision in (old, new):
        assert {known(pod) for pod in of(world, revision, "router").values()} == {revision}
    let_go(world, router)
    until_gone(world, old)


def test_going_back_before_the_switch_keeps_every_old_pod(world: World) -> None:
    old = ready(world)
    before = staying(of(world, old))
    world.apply("chat", spec(kv=NEXT, prefill=fake("never-ready")))
    wait.until(lambda: target(world) != old, "a new revision", SECONDS)
    new = target(world)
    world.apply("chat", spec())
    world.until_ready("chat")
    until_gone(world, new)
    assert staying(of(world, old)) == before


def test_going_back_after_the_switch_keeps_every_old_engine(world: World) -> None:
    old = ready(world)
    engines = staying(of(world, old, "prefill")) | staying(of(world, old, "decode"))
    router = held_router(world, old)
    new = ready(world, kv=NEXT)
    world.apply("chat", spec())
    until_serving(world, old)
    let_go(world, router)
    until_gone(world, new)
    found = of(world, old)
    assert engines <= staying(found)
    world.until_ready("chat")


def test_a_corrected_spec_replaces_one_that_never_worked_at_once(world: World) -> None:
    world.apply("chat", spec(prefill=fake("never-ready")))
    world.until_condition("chat", "PrefillReady", "False", "Starting")
    broken = target(world)
    ready(world)
    until_gone(world, broken)


def test_recreate_makes_room_first(world: World) -> None:
    recreate = {"strategy": "Recreate"}
    old = ready(world, updates=recreate)
    world.apply("chat", spec(updates=recreate, prefill=fake("never-ready")))
    world.until_condition("chat", "PrefillReady", "False", "Starting")
    assert not of(world, old, "prefill")
    assert not of(world, old, "decode")
    assert "servingRevision" not in world.status("chat")
    assert world.condition("chat", "RouterReady")["message"].startswith("nobody serves")
    assert world.condition("chat", "SparsityHealthy")["reason"] == "NoPods"
    let_it_load(world, target(world))
    world.until_ready("chat")
    assert world.status("chat")["servingRevision"] == target(world)
    until_gone(world, old)


def test_half_of_the_pods_serve_while_the_others_are_replaced(world: World) -> None:
    half = {"maxSurge": 0, "maxUnavailable": "50%"}
    two = {"replicas": 2}
    old = ready(world, prefill=two, decode=two, updates=half)
    world.apply("chat", spec(kv=NEXT, prefill=two, decode=two, updates=half))

    def updated() -> bool:
        pods = [pod for part in ("prefill", "decode") for pod in all_of(world, part)]
        assert len(pods) <= 4
        able = staying(of(world, serving(world), "decode"))
        assert able, "nobody serves"
        return not of(world, old) and serving(world) != old

    wait.until(updated, "the update", SECONDS)
    world.until_ready("chat")
    assert world.status("chat")["decode"]["readyReplicas"] == 2


def all_of(world: World, component: str) -> list[Manifest]:
    label = "oasiskv.io/component"
    return [p for p in world.owned("pods", "chat") if p["metadata"]["labels"][label] == component]


def test_an_update_that_cannot_fit_is_told_and_takes_nothing_away(world: World) -> None:
    none = {"maxSurge": 0, "maxUnavailable": "50%"}
    old = ready(world, updates=none)
    before = staying(of(world, old))
    world.apply("chat", spec(kv=NEXT, updates=none))
    found = world.until_condition("chat", "Ready", "False", "NoRoomForUpdate")
    assert "maxUnavailable" in found["message"]
    assert staying(of(world, old)) == before
    world.apply("chat", spec(kv=NEXT))
    world.until_ready("chat")


def test_what_concerns_no_pod_starts_none_anew(world: World) -> None:
    old = ready(world)
    before = staying(of(world, old))
    world.kubectl("label", "odep", "chat", "team=a")
    world.apply("chat", spec(updates={"maxSurge": 1}, decode={"replicas": 2}))
    world.until_ready("chat")
    assert target(world) == old
    assert before < staying(of(world, old))


def test_fields_that_are_taken_back_leave_nothing_of_what_they_did(world: World) -> None:
    said = {
        "image": "runtime:mine",
        "servedModelName": "mine",
        "engine": {"maxNumSeqs": 4},
        "kv": NEXT,
        "decode": {"replicas": 2, "podTemplate": {"metadata": {"annotations": {"a": "b"}}}},
        "prefill": {"replicas": 2, "resources": {"requests": {"cpu": "1"}}},
        "router": {
            "image": "router:mine",
            "replicas": 2,
            "policy": "random",
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "resources": {"limits": {"memory": "1Gi"}},
        },
        "security": {"networkPolicy": False, "imagePullSecrets": ["mine"]},
        "updates": {"maxUnavailable": 1, "drainSeconds": 5},
        "autoscaling": {"owner": "external"},
    }
    old = ready(world, **said)
    new = ready(world)
    until_gone(world, old)
    world.apply("twin", spec())
    world.until_ready("twin")
    assert target(world) == new
    wait.until(
        lambda: world.content("chat").keys() == world.content("twin").keys(), "rest", SECONDS
    )
    assert world.content("chat") == world.content("twin")
    (pod,) = world.pods("chat", "decode")
    assert pod["spec"]["containers"][0]["image"] == "runtime:test"


def test_deleting_it_in_the_middle_of_an_update_removes_everything(world: World) -> None:
    ready(world)
    world.apply("chat", spec(kv=NEXT, prefill=fake("never-ready")))
    world.until_condition("chat", "RouterReady", "False", "Updating")
    world.kubectl("delete", "odep", "chat", "--timeout=30s")
    wait.until(
        lambda: not world.owned(f"{OWNED},pods", "chat"), "removal of all that it owned", SECONDS
    )


def test_pods_that_another_version_of_the_operator_made_run_on(
    world: World, operator: OperatorProcess
) -> None:
    """It wrote another template for the same spec, and noted the hash of that."""
    revision = ready(world)
    for component in ("decode", "router"):
        name = f"chat-{revision}-{component}"
        patch = {
            "metadata": {"annotations": {"oasiskv.io/template-hash": "another"}},
            "spec": {"template": {"spec": {"hostname": "another"}}},
        }
        written = ["--field-manager=oasiskv-operator", "--type=merge", "-p", json.dumps(patch)]
        world.kubectl("patch", "deployment", name, *written)

    def made() -> bool:
        pods = [*world.pods("chat", "decode"), *world.pods("chat", "router")]
        return bool(pods) and all(pod["spec"].get("hostname") == "another" for pod in pods)

    wait.until(made, "pods of the other version", SECONDS)
    world.until_ready("chat")
    before = staying(of(world, revision))
    operator.until_resynced(3)
    world.apply("chat", spec(decode={"replicas": 2}))
    world.until_ready("chat")
    assert before < staying(of(world, revision))
    assert made()
