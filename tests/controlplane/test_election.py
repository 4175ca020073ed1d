"""Two replicas: one leads, the other takes over."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

from oasis_operator.cluster.election import (
    DURATION_SECONDS,
    LEASE_NAME,
    RENEW_DEADLINE_SECONDS,
)
from testbed import wait
from tests.controlplane.operator_process import NAMESPACE, OperatorProcess
from tests.controlplane.world import World, spec

Start = Callable[..., OperatorProcess]


def holder(world: World) -> str:
    lease = json.loads(world.plane.kubectl("-n", NAMESPACE, "get", "lease", LEASE_NAME, "-ojson"))
    return str(lease["spec"].get("holderIdentity", ""))


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
    taken = {"spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 60}}
    world.plane.kubectl(
        "-n", NAMESPACE, "patch", "lease", LEASE_NAME, "--type=merge", "-p", json.dumps(taken)
    )
    assert leader.until_ended(RENEW_DEADLINE_SECONDS) == 1
    world.plane.kubectl("-n", NAMESPACE, "delete", "lease", LEASE_NAME)


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
    world.until_ready("chat")
    assert operator.leads()
    assert operator.probe("healthz") == 200
