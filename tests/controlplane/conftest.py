"""A real API server for the tests here, with fake nodes: real objects, no containers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed import processes
from testbed.controlplane import bed
from testbed.controlplane.faults import FaultProxy
from testbed.controlplane.groups import leader_worker_sets
from tests.controlplane import release
from tests.controlplane.operator_process import NAMESPACE, OperatorProcess
from tests.controlplane.world import World

FAKE_NODES = 3


@pytest.fixture(scope="session")
def control_plane() -> Iterator[bed.ControlPlane]:
    """etcd, API server, controller manager, scheduler and KWOK with Ready nodes ``fake-0`` to -2.

    Pods become Running and Ready there without running anything; ``testbed/README.md`` lists the
    annotations that delay or fail them. Ends with the session, also when pytest is killed: the
    next bring-up sweeps beds whose owner is gone.
    """
    owner = processes.this_process("pytest")
    running = bed.up(bed.named_folder(f"pytest-{owner.pid}"), kwok=True, owner=owner)
    try:
        running.add_fake_nodes(FAKE_NODES)
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="session")
def installed(control_plane: bed.ControlPlane) -> bed.ControlPlane:
    """The chart is installed, and with it the CRD and the rights of the operator."""
    release.install(control_plane)
    return control_plane


@pytest.fixture(scope="module")
def groups(installed: bed.ControlPlane) -> Iterator[None]:
    """The cluster has LeaderWorkerSets; named before ``operator``, which looks once for them."""
    with leader_worker_sets(installed):
        yield


@pytest.fixture
def world(installed: bed.ControlPlane, request: pytest.FixtureRequest) -> Iterator[World]:
    """A namespace of its own for a test."""
    name = f"t-{hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:10]}"
    installed.kubectl("create", "namespace", name)
    found = World(installed, name)
    yield found
    # First, so that the next test's operator finds nothing to do in a namespace that goes.
    found.kubectl("delete", "odep", "--all")
    installed.kubectl("delete", "namespace", name, "--wait=false")


@contextmanager
def operators(
    plane: bed.ControlPlane, logs: Path, server: str = ""
) -> Iterator[Callable[..., OperatorProcess]]:
    """Starts replicas of the operator, which end with the context.

    ``server``: URL of a proxy in front of the API server, if any.
    """
    kubeconfig = plane.kubeconfig_for(release.NAME, NAMESPACE, server)
    started: list[OperatorProcess] = []

    def start(name: str, **environment: str) -> OperatorProcess:
        process = OperatorProcess(name, kubeconfig, logs / f"{name}.log", environment)
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started:
            process.stop()
    for process in started:
        failures = process.failures()
        assert not failures, f"{process.name}: {failures}"


@pytest.fixture
def start_operator(
    installed: bed.ControlPlane, tmp_path: Path
) -> Iterator[Callable[..., OperatorProcess]]:
    """Starts replicas of the operator, which end with the test."""
    with operators(installed, tmp_path) as start:
        yield start


@pytest.fixture(scope="module")
def proxy(installed: bed.ControlPlane) -> Iterator[FaultProxy]:
    """Between the API server and operators that are started with its URL."""
    proxy = FaultProxy(installed)
    try:
        yield proxy
    finally:
        proxy.close()


@pytest.fixture
def start_proxied(
    installed: bed.ControlPlane, proxy: FaultProxy, tmp_path: Path
) -> Iterator[Callable[..., OperatorProcess]]:
    """As ``start_operator``, through the proxy."""
    with operators(installed, tmp_path, proxy.url) as start:
        yield start


@pytest.fixture(scope="module")
def operator(
    installed: bed.ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """One replica that leads, for the tests of a module."""
    with operators(installed, tmp_path_factory.mktemp("operator")) as start:
        yield start("only").until_leading()
