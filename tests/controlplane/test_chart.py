"""The chart over time, and the operator without it: a control plane of its own, without nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import processes, wait
from testbed.controlplane import bed
from tests.controlplane import release
from tests.controlplane.operator_process import NAMESPACE, OperatorProcess
from tests.controlplane.world import World, spec

CRD = "crd/oasisdeployments.oasiskv.io"


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


def test_an_upgrade_brings_a_changed_crd(plane: bed.ControlPlane) -> None:
    plane.kubectl(
        "patch", CRD, "--type=json", "-p", '[{"op": "remove", "path": "/spec/names/shortNames"}]'
    )
    release.helm(plane, "upgrade", release.NAME, str(release.CHART), "--set=logLevel=DEBUG")
    assert "odep" in plane.kubectl("get", CRD, "-o", "jsonpath={.spec.names.shortNames}")


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
