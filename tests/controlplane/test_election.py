"""Two replicas: one leads, the other takes over."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable

from oasis_operator.cluster.election import (
    DURATION_SECONDS,
    LEASE_NAME,
    RENEW_DEADLINE_SECONDS,
)
from testbed import wait
from testbed.controlplane.faults import GONE, Breaking, Cut, FaultProxy, Held
from tests.controlplane.converged import until_converged
from tests.controlplane.operator_process import NAMESPACE, OperatorProcess
from tests.controlplane.world import SECONDS, World, spec

Start = Callable[..., OperatorProcess]


def holder(world: World) -> str:
    lease = json.loads(world.plane.kubectl("-n", NAMESPACE, "get", "lease", LEASE_NAME, "-ojson"))
    return str(lease["spec"].get("holderIdentity", ""))


def give_lease(world: World, holder: str) -> None:
    given = {"spec": {"holderIdentity": holder, "leaseDurationSeconds": 60}}
    world.plane.kubectl(
        "-n", NAMESPACE, "patch", "lease", LEASE_NAME, "--type=merge", "-p", json.dumps(given)
    )


def test_one_of_two_leads_and_the_other_takes_over_at_once_when_it_stops(
    world: World, start_operator: Start
) -> None:
    leader = start_operator("one").until_leading()
    other = start_operator("two").until_standing_by()
    assert holder(world) == "one"
    assert not other.leads()
    assert leader.stop() == 0
    wait.until(other.leads, "the takeover", DURATION_SECONDS / 2)
    world.apply("chat", spec())
    world.until_ready("chat")
    other.stop()


def test_a_leader_that_dies_is_followed_when_its_lease_ends(
    world: World, start_operator: Start
) -> None:
    leader = start_operator("three").until_leading()
    other = start_operator("four").until_standing_by()
    leader.kill()
    wait.until(other.leads, "the takeover", 3 * DURATION_SECONDS)
    assert holder(world) == "four"
    world.apply("chat", spec())
    world.until_ready("chat")
    other.stop()


def test_a_leader_whose_lease_is_taken_ends_before_another_may_act(
    world: World, start_operator: Start
) -> None:
    leader = start_operator("five").until_leading()
    give_lease(world, "somebody")
    assert leader.until_ended(RENEW_DEADLINE_SECONDS) == 1
    world.plane.kubectl("-n", NAMESPACE, "delete", "lease", LEASE_NAME)


def test_a_leader_that_loses_its_lease_in_a_reconcile_is_gone_before_the_reconcile_ends(
    world: World, proxy: FaultProxy, start_proxied: Start
) -> None:
    leader = start_proxied("loser").until_leading()
    late = threading.Event()
    held = Breaking(Held(late), lambda call: call.writes and "/deployments/" in call.path)
    with proxy.under(held):
        world.apply("chat", spec(prefill=None))
        wait.until(lambda: held.count > 0, "a reconcile under way", SECONDS, leader.require_alive)
        give_lease(world, "somebody")
        assert leader.until_ended(RENEW_DEADLINE_SECONDS) == 1
    give_lease(world, "")
    start_proxied("winner").until_leading()
    # What the loser had sent arrives now.
    late.set()
    until_converged(world)


def test_a_leader_whose_watch_is_refused_as_expired_makes_room_for_one_that_lists_anew(
    world: World, proxy: FaultProxy, start_proxied: Start
) -> None:
    world.apply("chat", spec(prefill=None))
    leader = start_proxied("seven").until_leading()
    until_converged(world)
    other = start_proxied("eight").until_standing_by()
    once = iter((True,))
    with proxy.under(Breaking(GONE, lambda call: call.watches and next(once, False))):
        proxy.cut_watches()
        assert leader.until_ended(SECONDS) == 1
        world.kubectl("delete", "service,configmap", "-l", "oasiskv.io/deployment=chat")
    wait.until(other.leads, "the takeover", DURATION_SECONDS / 2)
    until_converged(world)


def test_an_api_server_that_is_away_for_longer_than_a_lease_is_waited_for_by_the_next_start(
    world: World, proxy: FaultProxy, start_proxied: Start
) -> None:
    """As in an outage of a minute, but for the rest of it: after its deadline the leader ends, and
    what the kubelet starts then tries again every two seconds, however long it takes. The whole
    minute is in ``bench/operator_scale.py``.
    """
    world.apply("chat", spec(prefill=None))
    leader = start_proxied("nine").until_leading()
    until_converged(world)
    away = Breaking(Cut())
    with proxy.under(away):
        proxy.cut_watches()
        assert leader.until_ended(2 * RENEW_DEADLINE_SECONDS) == 1
        world.kubectl("delete", "service,configmap", "-l", "oasiskv.io/deployment=chat")
        tries = away.count
        again = start_proxied("nine")
        wait.until(lambda: away.count >= tries + 2, "another try", SECONDS, again.require_alive)
    until_converged(world)
    assert again.leads()


def test_without_rights_to_the_lease_it_waits_unready_and_alive(start_operator: Start) -> None:
    lonely = start_operator("lonely", POD_NAMESPACE="default")
    wait.until(lambda: lonely.probe("healthz") == 200, "an answer", 30)
    assert lonely.probe("readyz") == 503
    assert lonely.stop() == 0


def test_a_short_outage_of_the_api_server_is_survived(world: World, start_operator: Start) -> None:
    operator = start_operator("six").until_leading()
    (api,) = [process for process in world.plane.processes if process.name == "apiserver"]
    heard = operator.metric("oasis_operator_resyncs_total")
    os.kill(api.pid, signal.SIGSTOP)
    try:
        wait.until(
            lambda: operator.metric("oasis_operator_resyncs_total") >= heard + 5,
            "five resyncs without an API server",
            30,
        )
    finally:
        os.kill(api.pid, signal.SIGCONT)
    world.apply("chat", spec())
    until_converged(world)
    assert operator.leads()
    assert operator.probe("healthz") == 200
