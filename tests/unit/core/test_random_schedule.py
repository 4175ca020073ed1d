"""Ten thousand steps of anything that a scheduler may do: it admits, preempts, aborts, shares
prefixes, gives ids and blocks out again, and rejects drafts, over copies that come late, not
before they are waited for, or fail, and peers that send late or never.

After each step the world checks that a slot has one owner and a request its own lane, that what is
resident is what the host tier holds now, that sinks and window are resident, that no set is over
its budget, and that no copy went into a slot that was not its own: see the module ``world``."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import numpy as np
import pytest

from oasis_runtime.contract import PrefetchConfig, RequestOptions, SelectionConfig
from tests.unit.core.peer import Peer
from tests.unit.core.world import BLOCK, SMALL, OutOfBlocksError, Request, World

STEPS = 10_000
AUTO = SMALL.model_copy(update={"mode": "auto"})
ESCALATING = SMALL.model_copy(update={"escalate": True})
GROWING = SMALL.model_copy(update={"budget_grows_from": 192})
LONG = SMALL.model_copy(update={"window_tokens": 70, "sink_tokens": 40})


@dataclass(frozen=True)
class Setting:
    slots: int
    host_blocks: int = 90
    lanes: int = 6
    selection: SelectionConfig = SMALL
    cap: float | None = 1.0
    threads: int = 1
    broken: float = 0.002
    """Share of the copies that fail, each with those that were to follow it."""
    drafts: int = 1
    most: int = 5
    """Requests at a time."""
    peers: bool = False
    """Half of the requests come from a prefill engine. There must be room for all at once."""


SETTINGS = {
    "ample": Setting(slots=400),
    "room for two": Setting(slots=2 * 8 * 2 + 3),
    "room for one": Setting(slots=2 * 8),
    "hardly room for one": Setting(slots=2 * 8 - 1),
    "few blocks": Setting(slots=60, host_blocks=45),
    "few lanes": Setting(slots=100, lanes=2),
    "auto": Setting(slots=70, selection=AUTO),
    "long window": Setting(slots=80, selection=LONG),
    "budget grows": Setting(slots=100, selection=GROWING),
    "small cap": Setting(slots=70, cap=0.1),
    "measured cap": Setting(slots=70, cap=None),
    "three threads": Setting(slots=50, threads=3),
    "broken link": Setting(slots=100, threads=2, broken=0.05),
    "many drafts": Setting(slots=50, drafts=4),
    "heads of low recall": Setting(slots=120, selection=ESCALATING),
    "peers": Setting(slots=5 * 8 * 2, peers=True),
    "peers, few blocks": Setting(slots=5 * 8 * 2, peers=True, host_blocks=45),
}


class Schedule:
    def __init__(self, setting: Setting, seed: int) -> None:
        self.setting = setting
        self.rng = np.random.default_rng(seed)
        self.world = World(
            setting.slots,
            host_blocks=setting.host_blocks,
            lanes=setting.lanes,
            selection=setting.selection,
            prefetch=PrefetchConfig(wait_ms=0, cap=setting.cap, threads=setting.threads),
        )
        self.peer = Peer(self.world, self.rng)
        failures = np.random.default_rng(seed)
        self.world.gate.fail(lambda: failures.random() < setting.broken)
        self.served = {"sparse": 0, "dense": 0}
        self.preempted = self.aborted = self.shared = self.lost = 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._arrive()
            self._leave()
            self._copies()
            self._peers()
            self._audits()
            self._step()
            if self.rng.random() < 0.05:
                self.world.engine.check()
        self.world.close()

    def _arrive(self) -> None:
        world, rng = self.world, self.rng
        if len(world.requests) >= self.setting.most or rng.random() < 0.6:
            return
        name = rng.choice([n for n in "abcdefg" if n not in world.requests])  # ids come again
        prompt = int(rng.integers(1, rng.choice([40, 400])))
        if self.setting.peers and rng.random() < 0.5:
            with contextlib.suppress(OutOfBlocksError):
                self.peer.send(name, prompt)
            return
        shares: Request | None = None
        exact = [n for n in world.requests if n not in self.peer.exports]
        if exact and rng.random() < 0.5:
            shares = world.requests[rng.choice(exact)]
        if rng.random() < 0.2:
            mode = rng.choice(["dense", "auto", "sparse"])
            options = RequestOptions(mode=mode, budget_tokens=int(rng.choice([64, 256])))
            world.engine.requests.configure(name, options)
        r = world.admit(name, prompt, shares)
        self.shared += bool(r.blocks)

    def _leave(self) -> None:
        world, rng = self.world, self.rng
        if world.requests and rng.random() < 0.04:
            self._abort(world.requests[rng.choice(list(world.requests))])
        if world.requests and rng.random() < 0.02:
            self._preempt(world.requests[rng.choice(list(world.requests))])

    def _abort(self, r: Request) -> None:
        self.aborted += 1
        self.peer.forget(r.name)
        self.world.release(r)

    def _preempt(self, r: Request) -> None:
        self.preempted += bool(r.computed)
        self.peer.forget(r.name)
        self.world.preempt(r)

    def _peers(self) -> None:
        """Each sends nothing, a few pages or all that it was asked for, or is gone for good."""
        for name in list(self.peer.exports):
            if self.rng.random() < 0.01:
                self.peer.die(name)
                self.lost += 1
            else:
                self.peer.deliver(name, int(self.rng.choice([0, 0, 1, 5, 1000])))

    def _copies(self) -> None:
        self.world.gate.allow(int(self.rng.choice([0, 0, 1, 3, 1000])))

    def _audits(self) -> None:
        if self.rng.random() < 0.3:
            layer, head = self.rng.integers(2, size=2)
            name, recall = self.rng.choice(["a", "b", "c"]), self.rng.choice([0.3, 0.9])
            self.world.engine.audited(name, layer, head, recall, error=0.1)

    def _tokens(self, r: Request) -> tuple[int, int]:
        """Tokens to schedule and how many of them will be rejected drafts."""
        if r.remaining:
            return int(self.rng.integers(1, min(r.remaining, 160) + 1)), 0
        count = 1 + int(self.rng.integers(self.setting.drafts + 1))
        return count, int(self.rng.integers(count))

    def _step(self) -> None:
        world, rng = self.world, self.rng
        chosen = [r for r in world.requests.values() if rng.random() < 0.9]
        rng.shuffle(chosen)
        scheduled: dict[str, int] = {}
        rejected: dict[str, int] = {}
        for r in chosen:
            if r.name not in world.requests:
                continue
            count, wrong = self._tokens(r)
            try:
                world.grow(r, r.computed + count)
            except OutOfBlocksError:
                scheduled.pop(r.name, None)
                (self._preempt if r.computed < 600 else self._abort)(r)
                continue
            scheduled[r.name], rejected[r.name] = count, wrong
        if scheduled:
            outcome = world.step(scheduled, rejected, between=self._copies)
            for name, mode in outcome.served.items():
                self.served[mode] += 1
                assert mode == "sparse" or name not in self.peer.exports
            for name, pages in outcome.wants.items():
                self.peer.ask(name, pages)


@pytest.mark.parametrize("name", SETTINGS)
def test_nothing_breaks_whatever_the_scheduler_does(name: str) -> None:
    steps = -(-STEPS // len(SETTINGS))
    schedule = Schedule(SETTINGS[name], seed=len(name))
    schedule.run(steps)
    expected = 0 if name == "hardly room for one" else steps // 10
    assert schedule.served["sparse"] >= expected
    assert schedule.served["dense"]
    assert schedule.preempted
    assert schedule.aborted
    assert schedule.shared
    assert bool(schedule.lost) is SETTINGS[name].peers


def test_pages_are_late_when_copies_are() -> None:
    schedule = Schedule(SETTINGS["room for two"], seed=1)
    schedule.run(300)
    stats = schedule.world.engine.statistics
    assert stats.late == schedule.world.late > 0
    assert stats.moved_bytes["host", "fast", "prefetch"] > 0
    assert stats.selected > stats.resident > 0


def test_requests_are_dense_for_a_while_when_copies_fail() -> None:
    schedule = Schedule(SETTINGS["broken link"], seed=1)
    schedule.run(300)
    stats = schedule.world.engine.statistics
    assert stats.failed > 0
    assert stats.fallbacks["copy_failed"] > 0
    assert schedule.served["sparse"] > 0


def test_a_request_longer_than_a_block_of_drafts_is_still_right() -> None:
    """More tokens in a decode step than the window allows for make it dense, not wrong."""
    world = World(100)
    r = world.admit("r", 300)
    world.prefill(r)
    world.decode(r)
    assert world.step({"r": BLOCK + 1}).served == {"r": "dense"}
    assert world.step({"r": BLOCK}).served == {"r": "sparse"}
    world.close()
