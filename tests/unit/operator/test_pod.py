from __future__ import annotations

from typing import Any

import pytest

from oasis_operator.desired.claim_template import claim_template
from oasis_operator.desired.devices import AllocationMode
from oasis_operator.desired.metadata import Component
from oasis_operator.desired.pod import engine_pod
from oasis_operator.desired.roles import role_plans
from oasis_runtime.contract import DRAIN_MARGIN_SECONDS
from oasis_runtime.serve.drain import parsed
from tests.unit.operator.make import deployment


def template(**spec: Any) -> dict[str, Any]:
    od = deployment(**spec)
    return engine_pod(od, role_plans(od)[0], "runtime:1", "config")


def container(**spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = template(**spec)["spec"]["containers"][0]
    return found


def env(**spec: Any) -> dict[str, Any]:
    return {item["name"]: item for item in container(**spec)["env"]}


def test_it_runs_the_runtime_with_the_mounted_configuration() -> None:
    engine = container()
    assert engine["command"][:4] == ["python", "-m", "oasis_runtime", "serve"]
    assert engine["command"][-1] == "/etc/oasiskv/engine.yaml"
    assert "/etc/oasiskv" in [mount["mountPath"] for mount in engine["volumeMounts"]]


def test_its_peers_reach_it_at_its_pod_address() -> None:
    assert env()["OASIS_TRANSFER_HOST"]["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"


def test_it_is_restricted() -> None:
    spec = template()["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_what_it_must_write_to_is_an_empty_dir() -> None:
    volumes = {v["name"]: v for v in template()["spec"]["volumes"]}
    mounts = {m["mountPath"]: m["name"] for m in container()["volumeMounts"]}
    assert volumes[mounts["/tmp"]]["emptyDir"] == {}
    assert volumes[mounts[env()["HOME"]["value"]]]["emptyDir"] == {}
    assert volumes[mounts["/dev/shm"]]["emptyDir"] == {"medium": "Memory"}


def test_every_probe_may_take_five_seconds() -> None:
    engine = container()
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert engine[name]["timeoutSeconds"] == 5


def test_loading_may_take_as_long_as_the_progress_deadline() -> None:
    probe = container(updates={"progressDeadlineSeconds": 601})["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 601


def drain_arguments(component: Component, **spec: Any) -> list[str]:
    od = deployment(**spec)
    (role,) = [plan for plan in role_plans(od) if plan.component is component]
    pod = engine_pod(od, role, "runtime:1", "config")["spec"]
    command: list[str] = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert command[:3] == ["python", "-m", "oasis_runtime.serve.drain"]
    return command[3:]


@pytest.mark.parametrize("component", [Component.PREFILL, Component.DECODE])
def test_a_pod_that_is_to_go_first_finishes_what_its_role_has_to_do(component: Component) -> None:
    assert parsed(drain_arguments(component)).role == component


def test_an_engine_of_one_role_has_no_prefill_engines_to_ask() -> None:
    found = parsed(drain_arguments(Component.DECODE, prefill=None))
    assert (found.role, found.prefills) == ("both", None)


def test_a_decode_pod_that_is_to_go_asks_the_prefill_pods() -> None:
    assert parsed(drain_arguments(Component.DECODE)).prefills == "chat-prefill.team.svc"


def test_a_pod_is_killed_only_after_its_drain_and_a_margin() -> None:
    limit = parsed(drain_arguments(Component.DECODE, updates={"drainSeconds": 60})).limit
    grace = template(updates={"drainSeconds": 60})["spec"]["terminationGracePeriodSeconds"]
    assert (limit, grace) == (60, 60 + DRAIN_MARGIN_SECONDS)


def test_prometheus_finds_it() -> None:
    assert template()["metadata"]["annotations"]["prometheus.io/port"] == "8000"


def test_the_api_key_comes_from_the_secret_only_if_there_is_one() -> None:
    secret = {"name": "key", "key": "value"}
    given = env(security={"apiKeySecret": secret})["VLLM_API_KEY"]
    assert given["valueFrom"]["secretKeyRef"] == secret
    assert "VLLM_API_KEY" not in env()


def test_placement_is_the_roles() -> None:
    spec = template(
        prefill={
            "nodeSelector": {"pool": "a"},
            "tolerations": [{"key": "gpu", "operator": "Exists", "tolerationSeconds": 5}],
        }
    )["spec"]
    assert spec["nodeSelector"] == {"pool": "a"}
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists", "tolerationSeconds": 5}]


def test_resources_are_written_as_the_api_writes_them() -> None:
    engine = container(prefill={"resources": {"requests": {"cpu": 2, "memory": "1Gi"}}})
    assert engine["resources"] == {"requests": {"cpu": "2", "memory": "1Gi"}}


def test_the_override_is_merged_over_the_pod() -> None:
    override = {
        "metadata": {"annotations": {"team": "a"}},
        "spec": {
            "runtimeClassName": "nvidia",
            "containers": [{"name": "engine", "env": [{"name": "X", "value": "1"}]}],
        },
    }
    found = template(prefill={"podTemplate": override})
    assert found["metadata"]["annotations"]["team"] == "a"
    assert found["metadata"]["annotations"]["prometheus.io/scrape"] == "true"
    assert found["spec"]["runtimeClassName"] == "nvidia"
    assert [c["name"] for c in found["spec"]["containers"]] == ["engine"]
    assert {"name": "X", "value": "1"} in found["spec"]["containers"][0]["env"]


@pytest.mark.parametrize("label", ["oasiskv.io/deployment", "oasiskv.io/component"])
def test_the_override_cannot_take_the_pod_out_of_its_selectors(label: str) -> None:
    found = template(prefill={"podTemplate": {"metadata": {"labels": {label: "other"}}}})
    assert found["metadata"]["labels"][label] != "other"


DEVICES = {
    "gpu": {"count": 2},
    "nic": {"resourceName": "example.com/vf"},
    "cpu": {"count": 16},
}


def allocated(mode: AllocationMode, **spec: Any) -> dict[str, Any]:
    od = deployment(**spec)
    found: dict[str, Any] = engine_pod(od, role_plans(od)[0], "runtime:1", "", mode)["spec"]
    return found


def test_by_claim_the_engine_gets_the_devices_of_its_template() -> None:
    memory = {"limits": {"memory": "32Gi"}}
    od = deployment(prefill={"devices": DEVICES, "resources": memory})
    role = role_plans(od)[0]
    template = claim_template(od, role)
    assert template is not None
    spec = engine_pod(od, role, "runtime:1", "", "dra")["spec"]
    (claim,) = spec["resourceClaims"]
    assert claim["resourceClaimTemplateName"] == template["metadata"]["name"]
    assert spec["containers"][0]["resources"] == memory | {"claims": [{"name": claim["name"]}]}


def test_by_kubelet_devices_are_resources() -> None:
    spec = allocated("kubelet", prefill={"devices": DEVICES})
    counts = {"nvidia.com/gpu": "2", "example.com/vf": "1", "cpu": "16"}
    assert spec["containers"][0]["resources"] == {"requests": counts, "limits": counts}
    assert "resourceClaims" not in spec


def test_the_roles_own_resources_win() -> None:
    own = {"limits": {"cpu": 32, "hugepages-1Gi": "8Gi"}, "requests": {"cpu": 32}}
    spec = allocated("kubelet", prefill={"devices": {"cpu": {"count": 16}}, "resources": own})
    resources = spec["containers"][0]["resources"]
    assert resources["limits"] == {"cpu": "32", "hugepages-1Gi": "8Gi"}
    assert resources["requests"]["cpu"] == "32"


@pytest.mark.parametrize("mode", ["kubelet", "dra"])
def test_the_scheduler_that_is_named_places_the_pods_whoever_aligns_them(mode: Any) -> None:
    numa = {"topology": {"numa": {"schedulerName": "topo-aware"}}, "prefill": {"devices": DEVICES}}
    assert allocated(mode, **numa)["schedulerName"] == "topo-aware"


def test_binding_memory_takes_a_capability() -> None:
    engine = container(topology={"numa": {"bindMemory": True}})
    capabilities = engine["securityContext"]["capabilities"]
    assert capabilities == {"drop": ["ALL"], "add": ["SYS_NICE"]}


def test_images_are_pulled_with_the_secrets_named() -> None:
    spec = template(security={"imagePullSecrets": ["registry"]})["spec"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
