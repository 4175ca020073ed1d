"""Engines on several nodes: what is made, and how it is counted."""

from __future__ import annotations

from typing import Any

import pytest

from oasis_operator.desired.limits import limits_of
from oasis_operator.desired.metadata import Component, Manifest
from oasis_operator.desired.pod_maker import LEADER, WORKER
from oasis_operator.desired.revision_state import RolePods
from oasis_operator.desired.workload import GROUP_LABEL
from oasis_operator.reconcile.foreign_fields import template_written_by_others, written_by_others
from oasis_operator.reconcile.observed import DeploymentView, ObjectKey, Observed
from oasis_operator.reconcile.ownership import needs
from oasis_operator.reconcile.plan import plan
from oasis_operator.reconcile.pods import PodView
from tests.unit.operator.make import built, deployment, pod, stored

COMPONENT = "oasiskv.io/component"


def spread(**fields: Any) -> Any:
    engine = {"tensorParallelSize": 4, "nodes": 2}
    decode = {"devices": {"gpu": {"count": 2}}, **fields.pop("decode", {})}
    return deployment(prefill=None, engine=engine, decode=decode, **fields)


def group_set(**fields: Any) -> Manifest:
    (found,) = (o for o in built(spread(**fields)).objects if o["kind"] == "LeaderWorkerSet")
    return found


def template(part: str, **fields: Any) -> Manifest:
    found: Manifest = group_set(**fields)["spec"]["leaderWorkerTemplate"][part]
    return found


def container(part: str, **fields: Any) -> Manifest:
    found: Manifest = template(part, **fields)["spec"]["containers"][0]
    return found


def test_an_engine_on_one_node_is_a_pod_of_a_deployment() -> None:
    kinds = [item["kind"] for item in built(deployment()).objects]
    assert kinds.count("Deployment") == 3
    assert "LeaderWorkerSet" not in kinds


def test_each_engine_is_a_group_of_as_many_pods_as_nodes() -> None:
    spec = group_set(decode={"replicas": 3})["spec"]
    assert (spec["replicas"], spec["leaderWorkerTemplate"]["size"]) == (3, 2)
    assert spec["leaderWorkerTemplate"]["restartPolicy"] == "RecreateGroupOnPodRestart"
    assert not any(o["kind"] == "Deployment" and "decode" in o["metadata"]["name"]
                   for o in built(spread()).objects)  # fmt: skip


def test_only_the_pod_that_answers_is_taken_for_an_engine() -> None:
    budget = next(o for o in built(spread()).objects if o["kind"] == "PodDisruptionBudget")
    chosen = budget["spec"]["selector"]["matchLabels"].items()
    assert chosen <= template(LEADER)["metadata"]["labels"].items()
    assert not chosen <= template(WORKER)["metadata"]["labels"].items()
    assert template(WORKER)["metadata"]["labels"][COMPONENT] == "decode-worker"


def test_nobody_probes_or_scrapes_the_others_and_they_end_as_the_one_that_answers() -> None:
    server, worker = container(LEADER), container(WORKER)
    assert server.keys() - worker.keys() == {
        "startupProbe",
        "readinessProbe",
        "livenessProbe",
    }
    assert worker["lifecycle"] == server["lifecycle"]
    assert [port["name"] for port in worker["ports"]] == ["transfer"]
    assert "annotations" not in template(WORKER)["metadata"]


@pytest.mark.parametrize("part", [LEADER, WORKER])
def test_all_pods_have_the_devices_configuration_and_override_of_the_role(part: str) -> None:
    override = {"spec": {"runtimeClassName": "nvidia"}}
    found = template(part, decode={"podTemplate": override})
    name = group_set(decode={"podTemplate": override})["metadata"]["name"]
    volumes = {v["name"]: v for v in found["spec"]["volumes"]}
    assert volumes["config"]["configMap"]["name"] == name
    assert found["spec"]["runtimeClassName"] == "nvidia"
    assert found["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    env = {item["name"]: item.get("value") for item in found["spec"]["containers"][0]["env"]}
    assert env["OASIS_NODE_RANK"] == "$(LWS_WORKER_INDEX)"
    assert env["OASIS_NODE_LEADER"] == "$(LWS_LEADER_ADDRESS)"


def test_an_engine_takes_the_gpus_of_all_its_pods() -> None:
    assert limits_of(spread()).devices == {Component.DECODE: 4}


def test_it_needs_what_its_pods_run_with() -> None:
    found = group_set()
    assert ObjectKey("ConfigMap", found["metadata"]["name"]) in needs(found)
    assert ObjectKey("NetworkPolicy", "chat-decode") in needs(found)


def test_a_template_that_another_version_made_of_the_same_spec_stays() -> None:
    objects = built(spread())
    live = stored(objects)
    key = ObjectKey.of(group_set())
    # Another version had another variable there, and wrote its hash.
    made = live[key]["spec"]["leaderWorkerTemplate"]
    made[WORKER]["spec"]["containers"][0]["env"] = [{"name": "OLD", "value": "1"}]
    made[WORKER]["metadata"]["creationTimestamp"] = None
    live[key]["metadata"]["annotations"]["oasiskv.io/template-hash"] = "older"
    todo = plan(objects.objects, objects.rollout, live)
    for item in todo.apply:
        assert item["spec"]["leaderWorkerTemplate"][WORKER]["spec"] == made[WORKER]["spec"]
        assert "creationTimestamp" not in item["spec"]["leaderWorkerTemplate"][WORKER]["metadata"]


def managed(fields: Manifest) -> Manifest:
    """A set of which somebody else has written these fields."""
    entry = {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": fields}}
    found = group_set()
    entry["apiVersion"] = found["apiVersion"]
    return found | {"metadata": found["metadata"] | {"managedFields": [entry]}}


def test_what_others_write_into_its_pods_is_told_from_their_labels() -> None:
    spec: Manifest = {"f:leaderWorkerTemplate": {"f:size": {}}}
    assert template_written_by_others(managed(spec))
    label: Manifest = {
        "f:leaderWorkerTemplate": {f"f:{WORKER}": {"f:metadata": {"f:labels": {"f:a": {}}}}}
    }
    assert not written_by_others(managed(label))
    assert written_by_others(managed({"f:replicas": {}}))
    assert not template_written_by_others(managed({"f:replicas": {}}))


def seen(*conditions: str, **status: int) -> DeploymentView:
    told = [{"type": name, "status": "True"} for name in conditions]
    return DeploymentView.of(group_set(decode={"replicas": 2}) | {
        "status": {"conditions": told, **status}})  # fmt: skip


def test_it_is_complete_when_all_its_groups_are() -> None:
    counts = {"replicas": 2, "updatedReplicas": 2}
    assert seen("Available", readyReplicas=2, **counts).complete
    assert not seen("Progressing", readyReplicas=1, **counts).complete
    assert not seen().complete


def test_it_worked_once_if_all_its_groups_were_ever_available() -> None:
    assert seen("Available", "Progressing", replicas=2, readyReplicas=1).established
    assert not seen("Progressing", replicas=2, readyReplicas=1).established


def member(component: str, group: str, **changes: Any) -> PodView:
    body = pod(f"chat-{component}-{group}", component=component, ready=True)
    body["metadata"]["labels"][GROUP_LABEL] = group
    if changes.get("terminating"):
        body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return PodView.of(body)


def test_a_group_holds_its_place_until_its_last_pod_is_gone() -> None:
    pods = (
        member("decode", "a"),
        member("decode-worker", "a"),
        member("decode", "b", terminating=True),
        member("decode-worker", "b"),
        member("decode-worker", "c"),
    )
    (state,) = Observed(pods=pods).revisions().values()
    assert state.roles == {Component.DECODE: RolePods(wanted=0, held=3, leaving=2, ready=1)}


def test_what_keeps_any_pod_of_a_group_from_running_is_looked_at() -> None:
    observed = Observed(pods=(member("decode", "a"), member("decode-worker", "a")))
    assert len(observed.members_of("0123abcd", Component.DECODE)) == 2
    assert len(observed.pods_of("0123abcd", Component.DECODE)) == 1
