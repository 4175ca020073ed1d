"""Pods that work off requests: prefill one after the other, decode all at once."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field

from bench.fleet.hardware import MAX_REQUESTS, Step
from bench.fleet.workload import Arrival


@dataclass
class Request:
    """One request on its way."""

    arrival: Arrival
    own_seconds: float
    """Time to first token on an idle fleet."""
    prefilled_at: float = 0.0
    decoding_at: float = 0.0
    first_token_at: float = 0.0
    ended_at: float = 0.0


@dataclass
class Counters:
    """Cumulative, as a metrics endpoint has them."""

    busy: float = 0.0
    prompt_tokens: float = 0.0
    answer_tokens: float = 0.0
    network: float = 0.0
    fetched: float = 0.0
    selected: float = 0.0
    resident: float = 0.0

    def copy(self) -> Counters:
        return Counters(**vars(self))


@dataclass(eq=False)
class Pod:
    """Common to both roles. Times are ``None`` until they have come."""

    asked_at: float
    started_at: float | None = None
    ready_at: float | None = None
    draining: bool = False
    counters: Counters = field(default_factory=Counters)
    scrapes: deque[tuple[float, Counters]] = field(default_factory=lambda: deque(maxlen=10))
    link_free_at: float = 0.0
    """When the last transfer through its network link ends."""

    @property
    def ready(self) -> bool:
        return self.ready_at is not None


@dataclass(eq=False)
class PrefillPod(Pod):
    """First come, first served, one at a time: chunks of prompts share one device."""

    queue: deque[Request] = field(default_factory=deque)
    current: Request | None = None
    began_at: float = 0.0

    @property
    def load(self) -> int:
        return len(self.queue) + (self.current is not None)


@dataclass(eq=False)
class DecodePod(Pod):
    """Every request in the batch gets one token a step."""

    steps: tuple[Step, ...] = ()
    queue: deque[Request] = field(default_factory=deque)
    batch: list[tuple[float, int, Request]] = field(default_factory=list)
    """Heap of the count of steps at which each request has all its tokens."""
    done_steps: float = 0.0
    at: float = 0.0
    version: int = 0
    """Of the batch; an end that was foreseen for an older one does not happen."""
    coming: int = 0
    """Requests whose KV is under way."""

    @property
    def load(self) -> int:
        return len(self.batch) + len(self.queue) + self.coming

    def advance(self, now: float) -> None:
        """Do the steps up to ``now``."""
        if self.batch and now > self.at:
            n, step = len(self.batch), self.steps[len(self.batch)]
            seconds = now - self.at
            steps = seconds / step.seconds
            self.done_steps += steps
            counters = self.counters
            counters.busy += seconds
            counters.answer_tokens += n * steps
            counters.fetched += steps * step.fetched
            counters.selected += n * steps
            counters.resident += n * steps * (1 - step.miss)
        self.at = now

    def admit(self, now: float) -> list[Request]:
        """Fill the batch from the queue; the requests that begin."""
        begun = []
        while self.queue and len(self.batch) < MAX_REQUESTS:
            request = self.queue.popleft()
            request.decoding_at = now
            ends = self.done_steps + max(1, request.arrival.answer)
            heapq.heappush(self.batch, (ends, id(request), request))
            begun.append(request)
        if begun:
            self.version += 1
        return begun

    def next_end(self) -> float | None:
        """Time at which the first request of the batch has all its tokens."""
        if not self.batch:
            return None
        left = max(0.0, self.batch[0][0] - self.done_steps)
        return self.at + left * self.steps[len(self.batch)].seconds
