"""The chart over time, and the operator without it: a control plane of its own, without nodes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import processes, wait
from testbed.controlplane import bed
from testbed.problem import Problem
from tests.controlplane import release
from tests.controlplane.operator_process import NAMESPACE, OperatorProcess
from tests.controlplane.world import World, spec


@pytest.fixture(scope="module")
def plane() -> Iterator[bed.ControlPlane]:
    owner = processes.this_process("pytest")
    running = bed.up(bed.named_folder(f"pytest-{owner.pid}-chart"), kwok=False, owner=owner)
    try:
        yield running
    finally:
        running.stop()


def test_an_operator_without_the_crd_says_so_and_ends(
    plane: bed.ControlPlane, tmp_path: Path
) -> None:
    plane.kubectl("create", "namespace", NAMESPACE)
    process = OperatorProcess("early", plane.kubeconfig, tmp_path / "log")
    assert process.until_ended(30) == 1
    assert "kubectl apply -f crds/" in process.log.read_text()


def test_upgrade_and_uninstall_keep_every_oasis_deployment(plane: bed.ControlPlane) -> None:
    release.install(plane)
    world = World(plane, "default")
    world.apply("chat", spec())
    before = world.get("odep", "chat")

    release.helm(plane, "upgrade", release.NAME, str(release.CHART), "--set=replicas=1")
    assert (
        plane.kubectl(
            "-n", NAMESPACE, "get", "deploy", release.NAME, "-o", "jsonpath={.spec.replicas}"
        )
        == "1"
    )
    assert world.get("odep", "chat") == before

    release.helm(plane, "uninstall", release.NAME, "--wait")
    assert world.get("odep", "chat") == before

    release.install(plane)
    assert world.get("odep", "chat") == before


@pytest.fixture
def older_chart(tmp_path: Path) -> Path:
    """The chart before a field and the short name came to the CRD."""
    chart = tmp_path / "oasiskv"
    shutil.copytree(release.CHART, chart)
    file = chart / "files" / "oasisdeployments.oasiskv.io.yaml"
    crd = yaml.safe_load(file.read_text())
    del crd["spec"]["names"]["shortNames"]
    (version,) = crd["spec"]["versions"]
    fields = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del fields["servedModelName"]
    file.write_text(yaml.safe_dump(crd))
    return chart


def test_an_upgrade_brings_new_fields_and_keeps_what_is_there(
    plane: bed.ControlPlane, older_chart: Path
) -> None:
    world = World(plane, "default")
    release.helm(plane, "upgrade", release.NAME, str(older_chart))
    world.kubectl("delete", "oasisdeployments", "--all")
    world.apply("old", spec())
    assert "servedModelName" in world.refused("new", spec(servedModelName="tiny"))
    before = world.get("oasisdeployments", "old")

    release.helm(plane, "upgrade", release.NAME, str(release.CHART))
    wait.until(lambda: not world.refused("new", spec(servedModelName="tiny")), "the field", 30)
    after = world.get("odep", "old")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"]["kv"].items() >= before["spec"]["kv"].items()


def test_the_operators_pods_meet_the_restricted_standard(plane: bed.ControlPlane) -> None:
    plane.kubectl("create", "namespace", "restricted")
    enforced = "pod-security.kubernetes.io/enforce=restricted"
    plane.kubectl("label", "namespace", "restricted", enforced)
    deployment = ("-n", NAMESPACE, "get", "deployment", release.NAME, "-o", "json")
    template = json.loads(plane.kubectl(*deployment))["spec"]["template"]
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "operator"},
        "spec": {**template["spec"], "serviceAccountName": "default"},
    }
    create = ("-n", "restricted", "create", "--dry-run=server", "-f", "-")
    wait.until(
        lambda: "default" in plane.kubectl("-n", "restricted", "get", "serviceaccounts"),
        "the default service account",
        30,
    )
    plane.kubectl(*create, manifest=pod)
    del pod["spec"]["securityContext"]
    with pytest.raises(Problem, match="violates PodSecurity"):
        plane.kubectl(*create, manifest=pod)


def test_who_may_edit_a_namespace_may_edit_its_oasis_deployments(plane: bed.ControlPlane) -> None:
    account = "default:dev"
    plane.kubectl("create", "serviceaccount", "dev")
    plane.kubectl(
        "create", "rolebinding", "dev", "--clusterrole=edit", f"--serviceaccount={account}"
    )
    who = f"--as=system:serviceaccount:{account}"

    def may() -> bool:
        asked = ("create", "oasisdeployments.oasiskv.io", who)
        return plane.kubectl("auth", "can-i", *asked).strip() == "yes"

    wait.until(may, "the right to create one", 30)
