"""The operator in its cluster: one of two leads, and it costs little."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from examples.ask import Prometheus
from oasis_operator.cluster.election import DURATION_SECONDS, LEASE_NAME
from testbed import wait
from testbed.node.cluster import Cluster
from tests.e2e.conftest import SYSTEM
from tests.e2e.served import Served

MEGABYTE = 1_000_000
IDLE_SECONDS = 10.0


def operators(cluster: Cluster) -> Mapping[str, Mapping[str, Any]]:
    """Pods of the operator by name."""
    chosen = "app.kubernetes.io/name=oasiskv-operator"
    found = json.loads(cluster.kubectl("-n", SYSTEM, "get", "pods", "-l", chosen, "-ojson"))
    return {pod["metadata"]["name"]: pod for pod in found["items"]}


def leader(cluster: Cluster) -> str:
    lease = json.loads(cluster.kubectl("-n", SYSTEM, "get", "lease", LEASE_NAME, "-ojson"))
    return str(lease["spec"].get("holderIdentity", ""))


def test_two_replicas_run_and_one_of_them_leads(release: Cluster) -> None:
    wait.until(lambda: leader(release) in operators(release), "a leader", 60, every=0.5)
    assert len(operators(release)) == 2


def test_prometheus_finds_and_scrapes_every_pod(
    disaggregated: Served, prometheus: Prometheus
) -> None:
    def unseen() -> set[str]:
        pods = {pod.name for pod in disaggregated.pods()} | set(operators(disaggregated.cluster))
        assert len(pods) == 5
        return {pod for pod in pods if not prometheus.query(f'up{{job="pods",pod="{pod}"}} == 1')}

    wait.until(lambda: not unseen(), "a scrape of every pod", 60, every=1)
    (leading,) = prometheus.query("sum (oasis_operator_leader)").values()
    assert leading == 1


def test_an_operator_takes_less_than_150_megabytes(
    disaggregated: Served, prometheus: Prometheus
) -> None:
    names = operators(disaggregated.cluster)
    assert len(names) == 2
    for name in names:
        query = f'pod_memory_working_set_bytes{{pod="{name}"}}'
        wait.until(lambda q=query: bool(prometheus.query(q)), "a sample", 60, every=1)  # type: ignore[misc]
        (used,) = prometheus.query(query).values()
        assert 10 * MEGABYTE < used < 150 * MEGABYTE


def test_idle_engines_take_less_than_a_tenth_of_a_core(
    disaggregated: Served, prometheus: Prometheus
) -> None:
    """CPU time between two measurements of the kubelet that lie 10 s or more apart.

    The kubelet's newest measurement may be older than this test, and hold what a start burned.
    """
    begin = time.time()
    engines = [*disaggregated.pods("prefill"), *disaggregated.pods("decode")]
    first: dict[str, tuple[float, float]] = {}
    shares: dict[str, float] = {}

    def measured() -> bool:
        for pod in engines:
            series = f'pod_cpu_usage_seconds_total{{pod="{pod.name}"}}'
            used = next(iter(prometheus.query(series).values()), None)
            when = next(iter(prometheus.query(f"timestamp({series})").values()), None)
            if used is None or when is None or when <= begin:
                continue
            start, before = first.setdefault(pod.name, (when, used))
            if when - start >= IDLE_SECONDS:
                shares.setdefault(pod.name, (used - before) / (when - start))
        return len(shares) == len(engines)

    wait.until(measured, "measurements of idle engines", 120, every=1)
    assert all(0 < share < 0.1 for share in shares.values()), shares


def test_another_takes_over_from_a_leader_that_dies_and_no_engine_notices(
    disaggregated: Served,
) -> None:
    cluster = disaggregated.cluster
    wait.until(lambda: leader(cluster) in operators(cluster), "a leader", 60, every=0.5)
    dead, pods = leader(cluster), disaggregated.pods()
    cluster.kubectl("-n", SYSTEM, "delete", "pod", dead, "--grace-period=0", "--force")

    def taken_over() -> bool:
        # By the other one, or by the pod that the Deployment makes in the place of the dead one.
        return leader(cluster) in set(operators(cluster)) - {dead}

    wait.until(taken_over, "the takeover", 3 * DURATION_SECONDS, every=0.5)

    # It acts: what is missing comes back.
    disaggregated.kubectl("delete", "service", "demo-router")
    service = ("get", "service", "demo-router", "--ignore-not-found", "-oname")
    wait.until(lambda: bool(disaggregated.kubectl(*service)), "the Service", 60, every=0.5)
    disaggregated.until_ready()
    assert disaggregated.pods() == pods
