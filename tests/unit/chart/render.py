"""The chart through a real helm."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from testbed import programs

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "oasiskv"
POD_MONITOR = "monitoring.coreos.com/v1/PodMonitor"
PROMETHEUS_RULE = "monitoring.coreos.com/v1/PrometheusRule"
GOLDEN = Path(__file__).parent / "golden"


@cache
def helm_path() -> Path:
    """Built where there is none."""
    return programs.find(["helm"])["helm"]


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([helm_path(), *arguments], capture_output=True, text=True, check=False)


@cache
def rendered(*arguments: str) -> str:
    """``helm template`` of a release ``oasiskv`` in ``oasiskv-system``.

    Raises ``AssertionError`` with helm's words when it refuses.
    """
    done = helm("template", "oasiskv", str(CHART), "--namespace=oasiskv-system", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def documents(*arguments: str) -> list[dict[str, Any]]:
    return [item for item in yaml.safe_load_all(rendered(*arguments)) if item]


def without_crd(text: str) -> str:
    """The CRD has a golden file of its own: crds/."""
    parts = text.split("\n---\n")
    return "\n---\n".join(part for part in parts if "kind: CustomResourceDefinition" not in part)


CASES = {
    "default.yaml": (),
    "monitored.yaml": (
        f"--api-versions={POD_MONITOR}",
        "--set=prometheus.url=http://prometheus.monitoring.svc:9090,replicas=1",
        "--set=image.tag=1.2.3,podMonitor.labels.release=prometheus",
    ),
}


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for name, arguments in CASES.items():
        (GOLDEN / name).write_text(without_crd(rendered(*arguments)))
        print(f"wrote {name}")


if __name__ == "__main__":
    main()
