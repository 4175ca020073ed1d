"""The chart in a control plane, by a real helm."""

from __future__ import annotations

import subprocess
from pathlib import Path

from testbed import programs
from testbed.controlplane.bed import ControlPlane
from tests.controlplane.operator_process import NAMESPACE

NAME = "oasiskv"
CHART = Path(__file__).parents[2] / "charts" / "oasiskv"


def helm(plane: ControlPlane, *arguments: str) -> str:
    """What helm prints; ``AssertionError`` with its words when it fails."""
    done = subprocess.run(
        [programs.find(["helm"])["helm"], f"--namespace={NAMESPACE}", *arguments],
        capture_output=True,
        text=True,
        env=plane.environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def install(plane: ControlPlane) -> None:
    """The operators that the tests look at are processes; the chart's fake pods do nothing."""
    helm(plane, "install", NAME, str(CHART), "--create-namespace")
    crds = [f"crd/{kind}.oasiskv.io" for kind in ("oasisdeployments", "oasisroles")]
    plane.kubectl("wait", "--for=condition=Established", *crds, "--timeout=30s")
