from __future__ import annotations

from typing import Any

import pytest
import yaml

from oasis_operator.cluster.election import LEASE_NAME
from oasis_operator.settings import settings_from
from oasis_runtime.contract import OPERATOR_HEALTH_PORT, OPERATOR_METRICS_PORT
from tests.unit.chart.render import (
    CASES,
    CHART,
    GOLDEN,
    POD_MONITOR,
    documents,
    helm,
    rendered,
    without_crd,
)


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


def test_the_crd_is_kept_when_the_chart_goes() -> None:
    crd = one("CustomResourceDefinition")
    assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_the_crd_can_be_left_to_others() -> None:
    kinds = [item["kind"] for item in documents("--set=crds.install=false")]
    assert "CustomResourceDefinition" not in kinds


def test_pod_monitors_are_there_only_with_their_api() -> None:
    kinds = [item["kind"] for item in documents()]
    assert "PodMonitor" not in kinds
    kinds = [item["kind"] for item in documents(f"--api-versions={POD_MONITOR}")]
    assert kinds.count("PodMonitor") == 3


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
    ],
)
def test_a_wrong_value_is_refused_by_name(setting: str, told: str) -> None:
    done = helm("template", "x", str(CHART), f"--set={setting}")
    assert done.returncode != 0
    assert told in done.stderr


def test_a_release_of_another_name_has_names_of_its_own() -> None:
    done = helm("template", "blue", str(CHART), "--namespace=team")
    names = {
        (item["kind"], item["metadata"]["name"]) for item in yaml.safe_load_all(done.stdout) if item
    }
    assert ("Deployment", "blue-oasiskv") in names
    assert ("ClusterRole", "team:blue-oasiskv") in names
