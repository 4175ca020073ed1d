from __future__ import annotations

from typing import Any

import pytest

from oasis_operator.desired.build import Images
from oasis_operator.desired.metadata import REVISION_LABEL, Manifest
from tests.unit.operator.make import IMAGES, built, deployment, named


def revision(images: Images = IMAGES, **spec: Any) -> str:
    return built(deployment(**spec), images).rollout.target


def workload(component: str = "prefill", **spec: Any) -> Manifest:
    objects = built(deployment(**spec))
    return named(objects, "Deployment", f"chat-{objects.rollout.target}-{component}")


def test_a_workload_is_named_by_revision_and_role() -> None:
    objects = built(deployment())
    names = [o["metadata"]["name"] for o in objects.objects if o["kind"] == "Deployment"]
    target = objects.rollout.target
    assert names == [f"chat-{target}-prefill", f"chat-{target}-decode", f"chat-{target}-router"]


def test_it_selects_the_pods_of_its_own_revision_only() -> None:
    found = workload()
    chosen = found["spec"]["selector"]["matchLabels"]
    assert chosen[REVISION_LABEL] == revision()
    assert chosen.items() <= found["spec"]["template"]["metadata"]["labels"].items()


def test_it_mounts_the_configuration_of_its_own_revision() -> None:
    found = workload()
    volumes = {v["name"]: v for v in found["spec"]["template"]["spec"]["volumes"]}
    assert volumes["config"]["configMap"]["name"] == found["metadata"]["name"]


def test_the_deadline_for_progress_is_the_specs() -> None:
    assert (
        workload(updates={"progressDeadlineSeconds": 120})["spec"]["progressDeadlineSeconds"] == 120
    )


def test_it_is_owned_by_its_deployment() -> None:
    for item in built(deployment(uid="abc")).objects:
        (owner,) = item["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == (
            "OasisDeployment",
            "abc",
            True,
        )


@pytest.mark.parametrize(
    "spec",
    [
        {"kv": {"budgetTokens": 512}},
        {"decode": {"resources": {"limits": {"cpu": "3"}}}},
        {"prefill": {"podTemplate": {"spec": {"runtimeClassName": "x"}}}},
        {"security": {"apiKeySecret": {"name": "a", "key": "b"}}},
        {"prefill": None},
    ],
    ids=str,
)
def test_what_changes_a_pod_is_a_new_revision_of_both_roles(spec: dict[str, Any]) -> None:
    assert revision(**spec) != revision()


@pytest.mark.parametrize(
    "spec",
    [
        {"prefill": {"replicas": 5}},
        {"decode": {"replicas": 2}},
        {"router": {"replicas": 3}},
        {"router": {"image": "mine:1", "resources": {"requests": {"cpu": "1"}}}},
        {"security": {"networkPolicy": False}},
        {"updates": {"strategy": "Recreate"}},
        {"updates": {"maxSurge": 1, "maxUnavailable": "50%"}},
        {"kv": {"budgetTokens": 2048}},
    ],
    ids=str,
)
def test_what_changes_no_pod_is_the_same_revision(spec: dict[str, Any]) -> None:
    assert revision(**spec) == revision()


def test_another_image_is_another_revision() -> None:
    assert revision(Images("runtime:2", IMAGES.router)) != revision()


def test_another_router_image_is_not() -> None:
    assert revision(Images(IMAGES.engine, "router:2")) == revision()
