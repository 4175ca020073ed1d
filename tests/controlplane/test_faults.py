"""What breaks between the operator and the API server leaves no trace in the world.

After each fault :mod:`tests.controlplane.converged` compares the namespace with ``desired()``.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from testbed import wait
from testbed.controlplane import bed
from testbed.controlplane.faults import CONFLICT, TOO_MANY, Breaking, Call, Cut, FaultProxy, Held
from tests.controlplane.conftest import operators
from tests.controlplane.converged import until_converged
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.world import SECONDS, World, spec

pytestmark = pytest.mark.usefixtures("operator")

ALONE = spec(prefill=None)
WATCHES = 12
"""Kinds that the operator watches here."""


@pytest.fixture(scope="module")
def operator(
    installed: bed.ControlPlane, proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """One that leads, outlives all tests, and has no resync that could help it."""
    with operators(installed, tmp_path_factory.mktemp("faults"), proxy.url) as start:
        operator = start("proxied", OASIS_RESYNC_SECONDS="600").until_leading()
        yield operator
        operator.require_alive()


def until_watched(proxy: FaultProxy) -> None:
    wait.until(lambda: proxy.watches() == WATCHES, "a watch of every kind", SECONDS)


@contextmanager
def slow_etcd(plane: bed.ControlPlane) -> Iterator[None]:
    """etcd works a tenth of the time, so what it is asked takes a good part of a second."""
    (etcd,) = [process for process in plane.processes if process.name == "etcd"]
    over = threading.Event()

    def slow() -> None:
        while not over.wait(0.03):
            os.kill(etcd.pid, signal.SIGSTOP)
            over.wait(0.3)
            os.kill(etcd.pid, signal.SIGCONT)

    thread = threading.Thread(target=slow)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_an_api_server_that_refuses_a_third_of_the_requests_is_asked_again(
    world: World, proxy: FaultProxy, operator: OperatorProcess
) -> None:
    dice = random.Random(1)
    refused = Breaking(TOO_MANY, lambda _: dice.random() < 0.3)
    with proxy.under(refused):
        world.apply("chat", ALONE)
        until_converged(world)
    assert refused.count > 2
    assert operator.metric("oasis_operator_throttled_total") > 0


def test_a_write_that_conflicts_is_repeated_and_is_no_alarm(
    world: World, proxy: FaultProxy
) -> None:
    seen: set[str] = set()

    def first(call: Call) -> bool:
        new = call.writes and call.path not in seen
        seen.add(call.path)
        return new

    conflicting = Breaking(CONFLICT, first)
    with proxy.under(conflicting):
        world.apply("chat", ALONE)
        until_converged(world)
    assert conflicting.count > 5
    assert not [event for event in world.events("chat") if event["reason"] == "ApplyRefused"]


def test_a_watch_that_expires_starts_anew(world: World, proxy: FaultProxy) -> None:
    world.apply("chat", ALONE)
    until_converged(world)
    until_watched(proxy)
    proxy.expire_watches()
    world.kubectl("delete", "service", "chat-router")
    world.apply("chat", spec(prefill=None, decode={"replicas": 2}))
    until_converged(world)


def test_what_goes_before_expired_watches_start_anew_is_noticed(
    world: World, proxy: FaultProxy
) -> None:
    world.apply("chat", ALONE)
    until_converged(world)
    gone = threading.Event()
    lists = Breaking(Held(gone), lambda call: call.reads and not call.watches and not call.elects)
    until_watched(proxy)
    with proxy.under(lists):
        proxy.expire_watches()
        wait.until(lambda: lists.count >= WATCHES, "lists of all that is watched", SECONDS)
        world.kubectl("delete", "service,configmap", "-l", "oasiskv.io/deployment=chat")
        gone.set()
    until_converged(world)


def test_an_api_server_that_cuts_every_connection_is_waited_for(
    world: World, proxy: FaultProxy, operator: OperatorProcess
) -> None:
    cut = Breaking(Cut())
    with proxy.under(cut):
        proxy.cut_watches()
        world.apply("chat", ALONE)
        wait.until(lambda: cut.count >= 3 * WATCHES, "many tries", SECONDS)
    until_converged(world)
    assert operator.leads()


def test_a_slow_etcd_only_takes_longer(world: World) -> None:
    with slow_etcd(world.plane):
        world.apply("chat", ALONE)
        wait.until(lambda: bool(world.pods("chat", "decode")), "a pod all the same", SECONDS)
    until_converged(world)


def test_two_leaders_at_once_make_nothing_twice(
    world: World, operator: OperatorProcess, start_operator: Callable[..., OperatorProcess]
) -> None:
    # A lease in another namespace is another election.
    elsewhere = {"KUBECONFIG": str(world.plane.kubeconfig), "POD_NAMESPACE": world.namespace}
    other = start_operator("other", **elsewhere).until_leading()
    assert operator.leads()
    world.apply("chat", ALONE)
    until_converged(world)
    world.apply("chat", spec(prefill=None, kv={"budgetTokens": 512}, decode={"replicas": 2}))
    until_converged(world)
    assert other.stop() == 0
