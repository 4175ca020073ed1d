from __future__ import annotations

from oasis_operator.cluster.queue import DirtyQueue, Key
from oasis_operator.health import ELECTION_SECONDS, FRESH_SECONDS, WAIT_SECONDS, Health


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def made() -> tuple[Health, DirtyQueue, Clock]:
    clock = Clock()
    queue = DirtyQueue(clock)
    return Health(queue, clock), queue, clock


def test_a_new_replica_lives_and_is_not_ready() -> None:
    health, _, _ = made()
    assert health.stuck() == ""
    assert "API server" in health.unready()


def test_a_waiting_replica_that_hears_the_api_server_is_ready() -> None:
    health, _, _ = made()
    health.election_tried()
    health.election_heard()
    assert health.unready() == ""


def test_a_leader_is_ready_when_its_watches_are_up() -> None:
    health, _, _ = made()
    health.election_heard()
    up = False
    health.leads(lambda: up)
    assert "watches" in health.unready()
    up = True
    assert health.unready() == ""


def test_an_api_server_that_is_down_makes_unready_and_not_stuck() -> None:
    health, _, clock = made()
    health.election_heard()
    clock.now += max(FRESH_SECONDS, ELECTION_SECONDS) + 1
    health.election_tried()
    assert health.stuck() == ""
    assert health.unready() != ""


def test_an_election_that_stopped_is_stuck() -> None:
    health, _, clock = made()
    clock.now += ELECTION_SECONDS + 1
    assert "election" in health.stuck()


async def test_a_key_that_nobody_works_on_is_stuck() -> None:
    health, queue, clock = made()
    queue.mark(Key("team", "a"))
    clock.now += WAIT_SECONDS + 1
    health.election_tried()
    assert "waits" in health.stuck()


async def test_a_reconcile_that_never_ends_is_stuck() -> None:
    health, queue, clock = made()
    queue.mark(Key("team", "a"))
    await queue.take()
    clock.now += 1000
    health.election_tried()
    assert "reconcile" in health.stuck()
