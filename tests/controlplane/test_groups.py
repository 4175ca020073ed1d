"""Engines on several nodes: the real LeaderWorkerSet makes their pods."""

from __future__ import annotations

import pytest

from testbed import wait
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.world import SECONDS, Manifest, World, spec

pytestmark = pytest.mark.usefixtures("groups", "operator")

REVISION = "oasiskv.io/revision"


def on_two_nodes(replicas: int = 1, **fields: object) -> Manifest:
    engine = {"tensorParallelSize": 2, "nodes": 2}
    return spec(prefill=None, engine=engine, decode={"replicas": replicas}, **fields)


def sets(world: World) -> list[Manifest]:
    return world.owned("leaderworkersets", "chat")


def environment(pod: Manifest) -> dict[str, str]:
    """Of a container, as far as it is said in the pod itself, in its order."""
    container = pod["spec"]["containers"][0]
    return {item["name"]: item["value"] for item in container["env"] if "value" in item}


def until_only(world: World, revision: str) -> None:
    """Until no pod or set of another revision is left."""

    def others() -> list[str]:
        found = [*sets(world), *world.owned("pods", "chat")]
        return [
            item["metadata"]["name"]
            for item in found
            if item["metadata"]["labels"][REVISION] != revision
        ]

    try:
        wait.until(lambda: not others(), f"revision {revision} alone", SECONDS)
    except Exception as late:
        raise AssertionError(f"{late}: {others()}") from late


def test_each_engine_is_a_group_of_pods_of_which_one_answers(
    world: World, operator: OperatorProcess
) -> None:
    world.apply("chat", on_two_nodes(replicas=2))
    world.until_ready("chat")
    assert world.status("chat")["decode"]["ready"] == "2/2"
    leaders, workers = world.pods("chat", "decode"), world.pods("chat", "decode-worker")
    assert (len(leaders), len(workers)) == (2, 2)
    for pod, rank in ((leaders[0], "0"), (workers[0], "1")):
        names = list(environment(pod))
        # A variable can stand for those before it only.
        assert names.index("LWS_WORKER_INDEX") < names.index("OASIS_NODE_RANK")
        assert names.index("LWS_LEADER_ADDRESS") < names.index("OASIS_NODE_LEADER")
        assert environment(pod)["LWS_WORKER_INDEX"] == rank
    of = {pod["metadata"]["name"]: environment(pod)["LWS_LEADER_ADDRESS"] for pod in leaders}
    assert len(set(of.values())) == 2
    budget = world.get("pdb", "chat-decode")["status"]
    assert (budget["expectedPods"], budget["currentHealthy"]) == (2, 2)
    # Other replicas are the same pods; the operator and the set's own controller agree on it.
    kept = {leaders[0]["metadata"]["uid"], leaders[1]["metadata"]["uid"]}
    world.apply("chat", on_two_nodes(replicas=1))
    wait.until(lambda: len(world.owned("pods", "chat")) == 3, "a group less", SECONDS)
    world.until_ready("chat")
    assert {pod["metadata"]["uid"] for pod in world.pods("chat", "decode")} < kept
    operator.until_resynced(1)
    before = operator.written()
    operator.until_resynced(2)
    assert operator.written() == before


def test_another_revision_serves_before_the_groups_of_the_old_one_go(world: World) -> None:
    world.apply("chat", on_two_nodes())
    world.until_ready("chat")
    (old,) = sets(world)
    world.apply("chat", on_two_nodes(kv={"budgetTokens": 512}))
    world.until_ready("chat")
    until_only(world, world.status("chat")["revision"])
    assert sets(world)[0]["metadata"]["name"] != old["metadata"]["name"]
    # And to engines on one node each.
    world.apply("chat", spec(prefill=None))
    world.until_ready("chat")
    until_only(world, world.status("chat")["revision"])
    assert sets(world) == []


def test_what_others_write_into_a_set_is_undone_and_starts_nothing_anew(world: World) -> None:
    world.apply("chat", on_two_nodes())
    world.until_ready("chat")
    (before,) = sets(world)
    uids = {pod["metadata"]["uid"] for pod in world.owned("pods", "chat")}
    name = before["metadata"]["name"]
    world.kubectl("scale", "leaderworkerset", name, "--replicas=3")
    wait.until(lambda: sets(world)[0]["spec"]["replicas"] == 1, "its replicas", SECONDS)
    world.until_ready("chat")

    def others() -> set[str]:
        return {pod["metadata"]["uid"] for pod in world.owned("pods", "chat")} ^ uids

    wait.until(lambda: not others(), "the pods that there were, and no others", SECONDS)
