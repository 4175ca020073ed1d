from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from oasis_operator.cluster.election import LEASE_NAME
from oasis_operator.settings import settings_from
from oasis_operator.signals.queries import SCALING_WINDOW
from oasis_runtime.contract import OPERATOR_HEALTH_PORT, OPERATOR_METRICS_PORT
from tests.unit.chart.render import (
    CASES,
    CHART,
    GOLDEN,
    POD_MONITOR,
    PROMETHEUS_RULE,
    ROOT,
    documents,
    helm,
    rendered,
    without_crd,
)
from tests.unit.chart.rules import alerts

TESTBED_PROMETHEUS = ROOT / "testbed" / "monitoring" / "prometheus.yml"


def one(kind: str, *arguments: str) -> dict[str, Any]:
    (found,) = [item for item in documents(*arguments) if item["kind"] == kind]
    return found


def container(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = one("Deployment", *arguments)["spec"]["template"]["spec"]["containers"][
        0
    ]
    return found


def test_lint_is_clean() -> None:
    done = helm("lint", str(CHART), "--strict")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", sorted(CASES))
def test_it_renders_as_before(name: str) -> None:
    assert without_crd(rendered(*CASES[name])) == (GOLDEN / name).read_text(), (
        "the chart renders differently; if that is meant, run `python -m tests.unit.chart.render`"
    )


def test_the_crds_are_kept_when_the_chart_goes() -> None:
    crds = [item for item in documents() if item["kind"] == "CustomResourceDefinition"]
    assert len(crds) == 2
    for crd in crds:
        assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_the_crd_can_be_left_to_others() -> None:
    kinds = [item["kind"] for item in documents("--set=crds.install=false")]
    assert "CustomResourceDefinition" not in kinds


def test_pod_monitors_are_there_only_with_their_api() -> None:
    kinds = [item["kind"] for item in documents()]
    assert "PodMonitor" not in kinds
    kinds = [item["kind"] for item in documents(f"--api-versions={POD_MONITOR}")]
    assert kinds.count("PodMonitor") == 3


def test_engines_and_routers_get_the_labels_that_rules_and_dashboards_need() -> None:
    monitors = {
        item["metadata"]["name"]: item["spec"]["podMetricsEndpoints"][0].get("relabelings")
        for item in documents(f"--api-versions={POD_MONITOR}")
        if item["kind"] == "PodMonitor"
    }
    (scraped,) = yaml.safe_load(TESTBED_PROMETHEUS.read_text())["scrape_configs"][:1]
    (labelmap,) = [item for item in scraped["relabel_configs"] if item.get("action") == "labelmap"]
    assert monitors == {
        "oasiskv": None,
        "oasiskv-engines": [labelmap],
        "oasiskv-routers": [labelmap],
    }


def test_alerts_are_there_only_with_their_api() -> None:
    assert "PrometheusRule" not in [item["kind"] for item in documents()]
    groups = one("PrometheusRule", f"--api-versions={PROMETHEUS_RULE}")["spec"]["groups"]
    assert {rule["alert"]: rule for group in groups for rule in group["rules"]} == alerts()


def test_alerts_can_be_left_out() -> None:
    given = (f"--api-versions={PROMETHEUS_RULE}", "--set=prometheusRule.enabled=false")
    assert "PrometheusRule" not in [item["kind"] for item in documents(*given)]


def test_links_of_alerts_lead_to_where_runbooks_are_published() -> None:
    base = "https://wiki.example.org/runbooks"
    given = (f"--api-versions={PROMETHEUS_RULE}", f"--set=prometheusRule.runbooks={base}")
    for group in one("PrometheusRule", *given)["spec"]["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["runbook_url"] == f"{base}/{rule['alert']}.md"
            assert "runbook" not in rule["annotations"]


def test_without_a_base_url_no_alert_has_a_link_that_leads_nowhere() -> None:
    for group in one("PrometheusRule", f"--api-versions={PROMETHEUS_RULE}")["spec"]["groups"]:
        assert all("runbook_url" not in rule["annotations"] for rule in group["rules"])


@pytest.mark.parametrize("page", [CHART / "templates/NOTES.txt", CHART / "README.md"])
def test_who_is_told_to_delete_crds_is_told_all_of_them(page: Path) -> None:
    (told,) = re.findall(r"kubectl delete crd ([^`\n]+)", page.read_text())
    assert set(told.split()) == {
        item["metadata"]["name"]
        for item in documents()
        if item["kind"] == "CustomResourceDefinition"
    }


@pytest.mark.parametrize(
    ("given", "image"),
    [
        ("tag=", "r/o:0.1.0"),
        ("tag=1.2.3", "r/o:1.2.3"),
        (f"digest=sha256:{64 * 'a'}", f"r/o@sha256:{64 * 'a'}"),
    ],
)
def test_the_image_is_named_by_its_digest_or_its_tag(given: str, image: str) -> None:
    assert container("--set=image.repository=r/o", f"--set=image.{given}")["image"] == image


def test_pods_get_what_policies_of_a_cluster_ask_of_them() -> None:
    given = (
        "--set=priorityClassName=system-cluster-critical",
        "--set=podLabels.team=serving,podLabels.app\\.kubernetes\\.io/name=other",
        "--set-string=podAnnotations.a=b,podAnnotations.prometheus\\.io/scrape=false",
    )
    before, found = one("Deployment"), one("Deployment", *given)
    template = found["spec"]["template"]
    assert template["spec"]["priorityClassName"] == "system-cluster-critical"
    labels = before["spec"]["template"]["metadata"]["labels"]
    assert template["metadata"]["labels"] == labels | {"team": "serving"}
    assert template["metadata"]["annotations"]["a"] == "b"
    assert template["metadata"]["annotations"]["prometheus.io/scrape"] == "false"
    assert found["spec"]["selector"] == before["spec"]["selector"]


def test_dashboards_are_offered_to_grafana_when_asked_for() -> None:
    given = ("--set=dashboards.enabled=true", "--set=dashboards.annotations.folder=OasisKV")
    found = [item for item in documents(*given) if "dashboard" in item["metadata"]["name"]]
    assert all(item["metadata"]["labels"]["grafana_dashboard"] == "1" for item in found)
    assert all(item["metadata"]["annotations"] == {"folder": "OasisKV"} for item in found)
    content = {name: text for item in found for name, text in item["data"].items()}
    assert {name: json.loads(text) for name, text in content.items()} == {
        f"oasiskv-{path.name}": json.loads(path.read_text())
        for path in (CHART / "dashboards").iterdir()
    }


def test_without_being_asked_for_there_are_no_dashboards() -> None:
    assert not [item for item in documents() if item["kind"] == "ConfigMap"]


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("http://prometheus.monitoring.svc:9090", 9090),
        ("http://prometheus", 80),
        ("https://metrics.example.org/prometheus", 443),
        ("https://10.0.0.9:9443", 9443),
    ],
)
def test_the_operator_may_reach_prometheus_at_the_port_of_its_address(url: str, port: int) -> None:
    egress = one("NetworkPolicy", f"--set=prometheus.url={url}")["spec"]["egress"]
    assert {"ports": [{"port": port, "protocol": "TCP"}]} in egress
    assert {"to": [{"namespaceSelector": {}}]} in egress


def test_without_prometheus_it_reaches_names_and_the_api_server_only() -> None:
    given = ("--set=networkPolicy.apiServerPorts={6443}",)
    egress = one("NetworkPolicy", *given)["spec"]["egress"]
    ports = [(item["port"], item["protocol"]) for rule in egress for item in rule["ports"]]
    assert ports == [(53, "UDP"), (53, "TCP"), (6443, "TCP")]
    assert not [rule for rule in egress if "to" in rule]


def test_nothing_but_metrics_and_probes_of_the_operator_can_be_reached() -> None:
    policy = one("NetworkPolicy")["spec"]
    (rule,) = policy["ingress"]
    named = {item["port"] for item in rule["ports"]}
    assert named == {item["name"] for item in container()["ports"]}
    assert (
        policy["podSelector"]["matchLabels"] == one("Deployment")["spec"]["selector"]["matchLabels"]
    )


def test_two_replicas_are_never_evicted_together() -> None:
    assert one("Deployment")["spec"]["replicas"] == 2
    assert one("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    kinds = [item["kind"] for item in documents("--set=replicas=1")]
    assert "PodDisruptionBudget" not in kinds


def test_the_operator_understands_the_environment_that_it_gets() -> None:
    env = {item["name"]: item.get("value", "from-the-pod") for item in container()["env"]}
    found = settings_from(env)
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert found.runtime_image == values["runtime"]["image"]
    assert found.router_image == values["router"]["image"]
    assert found.resync_seconds == values["resyncSeconds"]


def mounted(pod: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    """File in the operator's container -> kind, name and key that it comes from."""
    folders = {item["name"]: item["mountPath"] for item in pod["containers"][0]["volumeMounts"]}
    return {
        f"{folders[volume['name']]}/{item['path']}": (kind, source["name"], item["key"])
        for volume in pod["volumes"]
        for sources in volume.get("projected", {}).get("sources", [])
        for kind, source in sources.items()
        for item in source["items"]
    }


@pytest.mark.parametrize(("value", "kind"), [("caSecret", "secret"), ("caConfigMap", "configMap")])
def test_the_operator_gets_what_a_prometheus_asks_who_asks(value: str, kind: str) -> None:
    given = (
        "--set=prometheus.bearerTokenSecret.name=reader,prometheus.bearerTokenSecret.key=jwt",
        f"--set=prometheus.{value}.name=trust,prometheus.{value}.key=bundle.pem",
        "--set=prometheus.headers.X-Scope-OrgID=serving",
    )
    env = {item["name"]: item.get("value", "from-the-pod") for item in container(*given)["env"]}
    found = settings_from(env)
    assert found.prometheus_headers == {"X-Scope-OrgID": "serving"}
    assert mounted(one("Deployment", *given)["spec"]["template"]["spec"]) == {
        str(found.prometheus_token_file): ("secret", "reader", "jwt"),
        str(found.prometheus_ca_file): (kind, "trust", "bundle.pem"),
    }


def test_an_open_prometheus_needs_no_files() -> None:
    pod = one("Deployment")["spec"]["template"]["spec"]
    assert mounted(pod) == {}
    env = {item["name"] for item in pod["containers"][0]["env"]}
    assert {name for name in env if "PROMETHEUS" in name} == {"OASIS_PROMETHEUS_URL"}


def test_ports_are_those_of_the_contract() -> None:
    ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
    assert ports == {"metrics": OPERATOR_METRICS_PORT, "health": OPERATOR_HEALTH_PORT}


def test_the_operator_is_restricted() -> None:
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    pod = one("Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True


def test_rights_are_named_one_by_one_and_secrets_are_not_among_them() -> None:
    rules = [
        rule
        for item in documents()
        if item["kind"] in ("ClusterRole", "Role")
        for rule in item["rules"]
    ]
    for rule in rules:
        for words in (rule["apiGroups"], rule["resources"], rule["verbs"]):
            assert "*" not in words
        assert "secrets" not in rule["resources"]


def test_the_lease_is_the_only_one_that_it_may_change() -> None:
    rules = one("Role")["rules"]
    (changing,) = [rule for rule in rules if "update" in rule["verbs"]]
    assert changing["resourceNames"] == [LEASE_NAME]


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("replicas=0", "replicas"),
        ("unknown=1", "unknown"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("prometheus.url=prometheus", "url"),
        ("runtime.image=", "image"),
        ("networkPolicy.apiServerPorts={70000}", "apiServerPorts"),
        ("networkPolicy.apiServerPorts=null", "apiServerPorts"),
        ("prometheusRule.runbooks=docs/runbooks", "runbooks"),
        ("prometheusRule.runbooks=https://wiki/", "runbooks"),
        ("image.digest=latest", "digest"),
        ("podLabels.a=1", "podLabels"),
        ("podMonitor.interval=often", "interval"),
        ("podMonitor.interval=0s", "interval"),
        ("podMonitor.interval=1m", "interval"),
        ("podMonitor.interval=31s", "interval"),
        ("podMonitor.interval=30001ms", "interval"),
        ("prometheus.headers.a=1", "headers"),
        ("prometheus.bearerTokenSecret.name=a", "key"),
        ("prometheus.caSecret.file=a", "file"),
        (
            "prometheus.caSecret.name=a,prometheus.caSecret.key=b,"
            "prometheus.caConfigMap.name=a,prometheus.caConfigMap.key=b",
            "set one of them",
        ),
        ("dashboards.labels.a=1", "labels"),
        ("logFormat=xml", "logFormat"),
        ("podMonitor=null", "podMonitor"),
        ("resources=null", "resources"),
        ("resources.limits.memory=lots", "memory"),
        ("tolerations[0].efect=NoSchedule", "efect"),
        ("affinity.nodes.a=b", "nodes"),
    ],
)
def test_a_wrong_value_is_refused_by_name(setting: str, told: str) -> None:
    done = helm("template", "x", str(CHART), f"--set={setting}")
    assert done.returncode != 0
    assert told in done.stderr


def test_scrapes_may_be_so_rare_that_every_rate_of_scaling_has_two() -> None:
    assert SCALING_WINDOW == "1m"
    for interval in ("30s", "30000ms", "9s", "500ms"):
        assert rendered(f"--set=podMonitor.interval={interval}")


def leaves(value: Any, schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, bool]]:
    """Every value of the chart, and whether the schema says of it what it may be."""
    properties = schema.get("properties", {})
    if not isinstance(value, dict) or not properties:
        yield path, bool({"type", "enum", "$ref"} & set(schema))
        return
    assert schema["additionalProperties"] is False, path
    for name, inner in value.items():
        yield from leaves(inner, properties.get(name, {}), f"{path}.{name}")


def test_the_schema_says_of_every_value_what_it_may_be() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert [path for path, known in leaves(values, schema) if not known] == []


def test_the_schema_knows_no_value_that_the_chart_does_not_have() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(schema["properties"]) - {"global"} == set(values)
    for name, section in schema["properties"].items():
        # What is empty by default has the fields of Kubernetes.
        if "properties" in section and values[name]:
            assert set(section["properties"]) == set(values[name]), name


def test_a_release_of_another_name_has_names_of_its_own() -> None:
    done = helm("template", "blue", str(CHART), "--namespace=team")
    names = {
        (item["kind"], item["metadata"]["name"]) for item in yaml.safe_load_all(done.stdout) if item
    }
    assert ("Deployment", "blue-oasiskv") in names
    assert ("ClusterRole", "team:blue-oasiskv") in names
