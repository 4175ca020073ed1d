from __future__ import annotations

from typing import Any

from vllm_router.launch_router import parse_router_args  # type: ignore[import-untyped]

from tests.unit.operator.make import built, deployment, named, router_name


def router(**spec: Any) -> dict[str, Any]:
    od = deployment(**spec)
    found: dict[str, Any] = named(built(od), "Deployment", router_name(od))
    return found


def container(**spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = router(**spec)["spec"]["template"]["spec"]["containers"][0]
    return found


def pods(component: str, **spec: Any) -> dict[str, str]:
    return {
        "oasiskv.io/deployment": "chat",
        "oasiskv.io/component": component,
        "oasiskv.io/revision": built(deployment(**spec)).rollout.target,
    }


def test_with_two_roles_the_router_finds_the_pods_of_each() -> None:
    args = parse_router_args(container()["args"])
    assert args.vllm_pd_disaggregation
    assert args.prefill_selector == pods("prefill")
    assert args.decode_selector == pods("decode")


def test_with_one_role_it_is_an_ordinary_router() -> None:
    args = parse_router_args(container(prefill=None)["args"])
    assert not args.vllm_pd_disaggregation
    assert args.selector == pods("decode", prefill=None)


def test_it_looks_in_its_own_namespace_and_checks_health_every_two_seconds() -> None:
    args = parse_router_args(container()["args"])
    assert args.service_discovery
    assert args.service_discovery_namespace == "team"
    assert args.service_discovery_port == 8000
    assert args.health_check_interval_secs == 2


def test_a_pod_that_does_not_answer_keeps_the_others_out_for_seconds_only() -> None:
    args = parse_router_args(container()["args"])
    assert args.worker_startup_timeout_secs == 5
    assert args.worker_startup_check_interval == 1


def test_its_metrics_can_be_reached() -> None:
    args = parse_router_args(container()["args"])
    assert (args.prometheus_host, args.prometheus_port) == ("0.0.0.0", 29000)
    annotations = router()["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == "29000"


def test_it_is_ready_only_with_a_worker_of_each_role() -> None:
    assert container()["readinessProbe"]["httpGet"]["path"] == "/readiness"


def test_a_switch_leaves_no_gap() -> None:
    assert router()["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_it_has_as_long_to_finish_its_streams_as_the_engines() -> None:
    pod = router(updates={"drainSeconds": 600})["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > 600


def test_replicas_image_and_resources_are_the_specs() -> None:
    spec = {"replicas": 3, "image": "mine:1", "resources": {"requests": {"cpu": "50m"}}}
    assert router(router=spec)["spec"]["replicas"] == 3
    assert container(router=spec)["resources"] == {"requests": {"cpu": "50m"}}


def test_it_is_restricted_too() -> None:
    assert container()["securityContext"]["readOnlyRootFilesystem"] is True
    assert router()["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"] is True


KEY = {"apiKeySecret": {"name": "chat-key", "key": "key"}}


def test_the_key_is_never_on_the_command_line() -> None:
    found = container(security=KEY)
    (key,) = [item for item in found["env"] if item["name"] == "OPENAI_API_KEY"]
    assert key["valueFrom"]["secretKeyRef"] == {"name": "chat-key", "key": "key"}
    assert "--api-key" not in str(found["args"])


def test_with_two_roles_it_checks_the_clients_key_against_an_engine() -> None:
    # It replaces the client's key with its own there, so nobody else would check it.
    found = container(security=KEY)
    assert found["command"][-1] == "http://chat-decode.team.svc:8000/v1/models"
    compile(found["command"][2], "launcher", "exec")
    compile(found["readinessProbe"]["exec"]["command"][2], "probe", "exec")


def test_with_one_role_the_engine_checks_the_key_that_the_router_passes_on() -> None:
    found = container(security=KEY, prefill=None)
    assert found["command"] == ["vllm-router"]


def test_its_policy_is_the_routers_own_unless_said() -> None:
    assert parse_router_args(container()["args"]).policy == "cache_aware"
    given = parse_router_args(container(router={"policy": "power_of_two"})["args"])
    assert given.policy == "power_of_two"


def test_it_runs_where_it_may_and_pulls_as_engines_do() -> None:
    toleration = {"key": "edge", "operator": "Exists"}
    pod = router(
        router={"nodeSelector": {"pool": "edge"}, "tolerations": [toleration]},
        security={"imagePullSecrets": ["registry"]},
    )["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"pool": "edge"}
    assert pod["tolerations"] == [toleration]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
