"""What is as it should be is left alone: by resyncs, by restarts, by another operator."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from testbed import wait
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.world import World, spec

Start = Callable[..., OperatorProcess]


def settled(world: World, operator: OperatorProcess) -> dict[str, tuple[str, str]]:
    world.apply("chat", spec(decode={"resources": {"requests": {"cpu": "1000m"}}}))
    world.until_ready("chat")

    def nothing_new() -> bool:
        writes = operator.writes()
        operator.until_resynced()
        return operator.writes() == writes

    # The cluster's controllers are still at it when the pods are ready.
    wait.until(nothing_new, "two resyncs without a write", 60)
    return world.versions("chat")


def test_a_resync_writes_nothing(world: World, start_operator: Start) -> None:
    operator = start_operator("quiet").until_leading()
    before = settled(world, operator)
    writes = operator.writes()
    operator.until_resynced(3)
    assert operator.writes() == writes
    assert world.versions("chat") == before
    operator.stop()


def test_a_restart_writes_nothing(world: World, start_operator: Start) -> None:
    first = start_operator("first").until_leading()
    before = settled(world, first)
    assert first.stop() == 0
    second = start_operator("second").until_leading()
    second.until_resynced(3)
    assert set(second.written().values()) == {0.0}
    assert world.versions("chat") == before
    second.stop()


def test_an_operator_with_other_default_images_changes_no_pod(
    world: World, start_operator: Start
) -> None:
    first = start_operator("old-default").until_leading()
    before = settled(world, first)
    first.stop()
    second = start_operator("new-default", OASIS_RUNTIME_IMAGE="runtime:next").until_leading()
    second.until_resynced(2)
    assert world.versions("chat") == before
    world.apply("fresh", spec())
    world.until_ready("fresh")
    (pod,) = world.pods("fresh", "decode")
    assert pod["spec"]["containers"][0]["image"] == "runtime:next"
    second.stop()


def test_an_unreachable_prometheus_breaks_nothing(world: World, start_operator: Start) -> None:
    # Nobody listens there.
    operator = start_operator("alone", OASIS_PROMETHEUS_URL="http://127.0.0.1:9").until_leading()
    before = settled(world, operator)
    found = world.condition("chat", "SparsityHealthy")
    assert (found["status"], found["reason"]) == ("Unknown", "PrometheusUnreachable")
    assert "hitRate" not in world.status("chat")
    operator.until_resynced(3)
    assert world.versions("chat") == before
    operator.stop()


def test_a_deletion_while_the_operator_sleeps_is_repaired(
    world: World, start_operator: Start
) -> None:
    operator = start_operator("asleep").until_leading()
    settled(world, operator)
    os.kill(operator.process.pid, signal.SIGSTOP)
    world.kubectl("delete", "service", "chat-router")
    os.kill(operator.process.pid, signal.SIGCONT)
    wait.until(lambda: bool(world.get("service", "chat-router")), "the Service again", 60)
    operator.stop()
