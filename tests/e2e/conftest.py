"""A real one-node cluster. The tests here run inside it, and see Services and pods as a pod does:

python3 -m testbed up && python3 -m testbed images --load
python3 -m testbed model --offer && python3 -m testbed prometheus
python3 -m testbed exec -- python -m pytest tests/e2e

Engines take half a minute to start and two are all that fit, so the tests share them. A test names
the deployment that it needs, and gets it Ready, whatever the tests before it did to it.
"""

from __future__ import annotations

import copy
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from examples.ask import Prometheus
from testbed.monitoring import manifests
from testbed.node.cluster import Cluster
from testbed.problem import Problem
from tests.e2e.served import Manifest, Served

CHECKOUT = Path(__file__).parents[2]
RELEASE, SYSTEM = "oasiskv", "oasiskv-system"
NAMESPACE = "e2e"
LEASE_SECONDS = 8
DRAIN_SECONDS = 60


@pytest.fixture(scope="session")
def node() -> Cluster:
    """The cluster around the tests, with its one node Ready."""
    try:
        cluster = Cluster.of(os.environ)
        cluster.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=60s")
    except Problem as problem:
        pytest.fail(str(problem), pytrace=False)
    return cluster


@pytest.fixture(scope="session")
def release(node: Cluster) -> Cluster:
    """The cluster with the chart installed, as a user does it."""
    repository, _, tag = node.image("operator").rpartition(":")
    values = {
        "image.repository": repository,
        "image.tag": tag,
        "runtime.image": node.image("runtime"),
        "router.image": node.image("router"),
        "prometheus.url": manifests.URL,
        "resyncSeconds": "10",
    }
    settings = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    done = subprocess.run(
        [
            *("helm", "upgrade", "--install", RELEASE, str(CHECKOUT / "charts" / "oasiskv")),
            *("--namespace", SYSTEM, "--create-namespace", "--wait", "--timeout", "3m"),
            *settings,
        ],
        capture_output=True,
        text=True,
        env=dict(node.environment),
    )
    if done.returncode != 0:
        pytest.fail(f"helm: {done.stderr}", pytrace=False)
    return node


class Stage:
    """The namespace of the tests, where one deployment at a time has engines."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._serving: Served | None = None

    def named(self, name: str) -> Served:
        return Served(self.cluster, NAMESPACE, name)

    def serve(self, manifest: Manifest) -> Served:
        """Have it Ready, in the place of another one."""
        served = self.named(manifest["metadata"]["name"])
        if self._serving is not None and self._serving != served:
            self._serving.delete()
        self._serving = served
        served.apply(manifest)
        served.until_ready()
        return served


@pytest.fixture(scope="session")
def stage(release: Cluster) -> Iterator[Stage]:
    if others := release.kubectl("get", "odep", "-A", "-oname").split():
        pytest.fail(
            f"the node has no room for more engines than those of the tests, but there is "
            f"{others[0]}: delete it, or start with `python3 -m testbed down`",
            pytrace=False,
        )
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    release.kubectl("apply", "-f", "-", manifest=namespace)
    yield Stage(release)
    release.kubectl("delete", "namespace", NAMESPACE, "--timeout=120s")


def example(name: str) -> Manifest:
    """A manifest of ``examples/``."""
    manifest: Manifest = yaml.safe_load((CHECKOUT / "examples" / f"{name}.yaml").read_text())
    return manifest


def with_roles(decode_replicas: int) -> Manifest:
    """``examples/demo.yaml`` in fp32, so that answers can be compared, and with short leases.

    With so little CPU asked for that two revisions find room on the node.
    """
    manifest = copy.deepcopy(example("demo"))
    spec = manifest["spec"]
    spec["engine"]["dtype"] = "float32"
    spec["kv"] |= {"hostSize": "1Gi", "fastSize": "256Mi"}
    settings = {
        "transfer.lease_seconds": LEASE_SECONDS,
        "transfer.heartbeat_seconds": LEASE_SECONDS / 4,
    }
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    for role in ("prefill", "decode"):
        spec[role]["podTemplate"] = {"spec": {"containers": [{"name": "engine", "args": words}]}}
        spec[role]["resources"]["requests"]["cpu"] = "200m"
    spec["decode"]["replicas"] = decode_replicas
    spec["updates"]["drainSeconds"] = DRAIN_SECONDS
    return manifest


@pytest.fixture
def disaggregated(stage: Stage) -> Served:
    """One prefill and one decode pod, Ready."""
    return stage.serve(with_roles(decode_replicas=1))


@pytest.fixture
def two_decodes(stage: Stage) -> Served:
    """One prefill and two decode pods, Ready."""
    return stage.serve(with_roles(decode_replicas=2))


@pytest.fixture
def single(stage: Stage) -> Served:
    """``examples/single.yaml`` with a CPU of its own, Ready."""
    manifest = example("single")
    alone = {"cpu": "1", "memory": "4Gi"}
    manifest["spec"]["decode"]["resources"] = {"requests": alone, "limits": alone}
    manifest["spec"]["topology"] = {"numa": {"mode": "kubelet", "policy": "required"}}
    return stage.serve(manifest)


@pytest.fixture
def prometheus() -> Prometheus:
    """Sums over the pods of ``examples/demo.yaml``."""
    return Prometheus(manifests.URL, NAMESPACE, "demo")
