"""The event loop: arrivals, prefill, transfer, decode, pods that start and drain, and a policy."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from bench.fleet import hardware
from bench.fleet.pods import Counters, DecodePod, Pod, PrefillPod, Request
from bench.fleet.view import FleetView, PodView, Replicas, RoleView
from bench.fleet.workload import Arrival, Workload

SCRAPE_SECONDS = 15.0
WINDOW_SECONDS = 60.0
"""Of rates and quantiles, as in the operator's queries."""
START_SECONDS = 90.0
"""From a GPU to the first request: image there, model loaded. Assumed."""
TTFT_SECONDS = 10.0
"""The SLO: time to first token up to this, or to twice what the prompt needs on an idle fleet."""
TPOT_SECONDS = 0.020
"""And seconds per token after the first, mean of the answer."""

SomePod = TypeVar("SomePod", PrefillPod, DecodePod)
AnyPod = TypeVar("AnyPod", bound=Pod)


class Policy(Protocol):
    """Says how many pods there are to be; asked every 15 s."""

    def replicas(self, view: FleetView, now: float) -> Replicas: ...


@dataclass
class Outcome:
    """What one run cost and gave."""

    requests: int = 0
    violations: int = 0
    slow_first: int = 0
    slow_tokens: int = 0
    gpu_hours: float = 0.0
    actions: int = 0
    """Changes of replicas, each role by itself."""
    timeline: list[tuple[float, int, int]] = field(default_factory=list)
    """Time, prefill and decode pods asked for."""

    @property
    def violated(self) -> float:
        """Share of the requests."""
        return self.violations / max(1, self.requests)


class Simulation:
    """One run of a workload under a policy."""

    def __init__(
        self,
        workload: Workload,
        policy: Policy,
        initial: Replicas,
        gpus: int,
        miss: Callable[[float], float] = lambda _: hardware.MISSES,
        seed: int = 0,
        start_seconds: float = START_SECONDS,
    ) -> None:
        self._workload = workload
        self._start_seconds = start_seconds
        self._policy = policy
        self._gpus = gpus
        self._miss = miss
        self._steps = {m: hardware.steps(m) for m in {miss(0.0)}}
        self._draw = random.Random(seed)
        self._events: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._order = itertools.count()
        self._now = 0.0
        self._prefill: list[PrefillPod] = []
        self._decode: list[DecodePod] = []
        self._exports: dict[int, float] = {}
        self._waits: dict[str, deque[tuple[float, float]]] = {
            name: deque() for name in ("prefill", "decode", "first")
        }
        self._unplaced: deque[Request] = deque()
        self.outcome = Outcome(requests=len(workload.arrivals))
        for _ in range(initial.prefill):
            self._prefill.append(PrefillPod(0.0, 0.0, 0.0))
        for _ in range(initial.decode):
            self._decode.append(DecodePod(0.0, 0.0, 0.0, steps=self._table(0.0)))
        self._opened()

    def run(self) -> Outcome:
        arrivals = iter(self._workload.arrivals)
        self._expect(arrivals)
        ticks = int(self._workload.seconds / SCRAPE_SECONDS)
        for i in range(1, ticks + 1):
            self._at(i * SCRAPE_SECONDS, self._tick)
        while self._events:
            self._now, _, handle, arguments = heapq.heappop(self._events)
            handle(*arguments)
        end = self._workload.seconds
        for pod in (*self._prefill, *self._decode):
            if pod.started_at is not None:
                self._spend(pod, end)
        return self.outcome

    def _at(self, time: float, handle: Callable[..., None], *arguments: object) -> None:
        heapq.heappush(self._events, (time, next(self._order), handle, arguments))

    def _table(self, now: float) -> tuple[hardware.Step, ...]:
        miss = self._miss(now)
        if miss not in self._steps:
            self._steps[miss] = hardware.steps(miss)
        return self._steps[miss]

    # The way of a request

    def _expect(self, arrivals: Iterator[Arrival]) -> None:
        """One after the other: a heap of all would be slow."""
        arrival = next(arrivals, None)
        if arrival is not None:
            self._at(arrival.at, self._arrive, arrival, arrivals)

    def _arrive(self, arrival: Arrival, arrivals: Iterator[Arrival]) -> None:
        self._expect(arrivals)
        own = (
            hardware.prefill_seconds(arrival.prompt)
            + hardware.transfer_bytes(arrival.prompt) / hardware.NETWORK
            + hardware.step(1, hardware.MISSES).seconds
        )
        request = Request(arrival, own)
        pod = self._choose(self._open_prefill)
        if pod is None:
            self._unplaced.append(request)
            return
        pod.queue.append(request)
        self._begin_prefill(pod)

    def _choose(self, pods: list[SomePod]) -> SomePod | None:
        """The less loaded of two, as the router's power-of-two policy."""
        if not pods:
            return None
        one = pods[int(self._draw.random() * len(pods))]
        other = pods[int(self._draw.random() * len(pods))]
        return one if one.load <= other.load else other

    def _opened(self) -> None:
        """After any change of the pods: those that take requests."""
        self._open_prefill = [pod for pod in self._prefill if pod.ready and not pod.draining]
        self._open_decode = [pod for pod in self._decode if pod.ready and not pod.draining]

    def _begin_prefill(self, pod: PrefillPod) -> None:
        if pod.current is not None or not pod.queue:
            return
        request = pod.current = pod.queue.popleft()
        pod.began_at = self._now
        self._observe("prefill", self._now - request.arrival.at)
        seconds = hardware.prefill_seconds(request.arrival.prompt)
        self._at(self._now + seconds, self._prefilled, pod, request)

    def _prefilled(self, pod: PrefillPod, request: Request) -> None:
        pod.counters.busy += self._now - pod.began_at
        pod.counters.prompt_tokens += request.arrival.prompt
        pod.current = None
        request.prefilled_at = self._now
        self._observe("first", self._now - request.arrival.at)
        self._exports[id(request)] = self._now
        self._transfer(pod, request)
        self._begin_prefill(pod)
        self._leave(pod)

    def _transfer(self, source: PrefillPod, request: Request) -> None:
        """Through both links, each of which takes one transfer after the other."""
        target = self._choose(self._open_decode)
        if target is None:
            self._at(self._now + 1.0, self._transfer, source, request)
            return
        size = hardware.transfer_bytes(request.arrival.prompt)
        begins = max(self._now, source.link_free_at, target.link_free_at)
        ends = begins + size / hardware.NETWORK
        source.link_free_at = target.link_free_at = ends
        source.counters.network += size
        target.counters.network += size
        target.coming += 1
        self._at(ends, self._transferred, target, request)

    def _transferred(self, pod: DecodePod, request: Request) -> None:
        pod.coming -= 1
        pod.queue.append(request)
        self._step_on(pod)

    def _step_on(self, pod: DecodePod) -> None:
        """After any change of a decode pod: admit, and foresee the next end."""
        pod.advance(self._now)
        for request in pod.admit(self._now):
            self._observe("decode", self._now - request.prefilled_at)
            request.first_token_at = self._now + pod.steps[len(pod.batch)].seconds
        end = pod.next_end()
        if end is not None:
            self._at(end, self._ended, pod, pod.version)

    def _ended(self, pod: DecodePod, version: int) -> None:
        if version != pod.version:
            return
        pod.advance(self._now)
        while pod.batch and pod.batch[0][0] <= pod.done_steps + 1e-6:
            _, _, request = heapq.heappop(pod.batch)
            request.ended_at = self._now
            self._exports.pop(id(request), None)
            self._judge(request)
        pod.version += 1
        self._step_on(pod)
        self._leave(pod)

    def _judge(self, request: Request) -> None:
        ttft = request.first_token_at - request.arrival.at
        slow_first = ttft > max(TTFT_SECONDS, 2 * request.own_seconds)
        tokens = max(1, request.arrival.answer - 1)
        slow_tokens = (request.ended_at - request.first_token_at) / tokens > TPOT_SECONDS
        self.outcome.slow_first += slow_first
        self.outcome.slow_tokens += slow_tokens
        self.outcome.violations += slow_first or slow_tokens

    # Pods

    def _tick(self) -> None:
        now = self._now
        for decode in self._decode:
            decode.advance(now)
            table = self._table(now)
            if decode.steps is not table:
                decode.steps = table
                decode.version += 1
                self._step_on(decode)
        for pod in (*self._prefill, *self._decode):
            if pod.ready:
                pod.scrapes.append((now, self._scraped(pod)))
        wanted = self._policy.replicas(self._view(), now)
        before = self._asked()
        self._scale(wanted)
        self.outcome.actions += (wanted.prefill != before.prefill) + (
            wanted.decode != before.decode
        )
        self.outcome.timeline.append((now, wanted.prefill, wanted.decode))

    def _asked(self) -> Replicas:
        return Replicas(len(_kept(self._prefill)), len(_kept(self._decode)))

    def _scale(self, wanted: Replicas) -> None:
        asked = self._asked()
        for _ in range(asked.prefill, wanted.prefill):
            self._prefill.append(PrefillPod(self._now))
        for _ in range(asked.decode, wanted.decode):
            self._decode.append(DecodePod(self._now, at=self._now, steps=self._table(self._now)))
        self._remove(self._prefill, asked.prefill - wanted.prefill)
        self._remove(self._decode, asked.decode - wanted.decode)
        self._place()

    def _remove(self, pods: list[SomePod], count: int) -> None:
        """Pods that serve nothing yet first, then those with the least to do; these drain."""
        order = sorted(
            _kept(pods), key=lambda pod: (pod.started_at is not None, pod.ready, pod.load)
        )
        for pod in order[: max(0, count)]:
            pod.draining = True
            self._opened()
            self._leave(pod)

    def _leave(self, pod: PrefillPod | DecodePod) -> None:
        if not pod.draining or pod.load:
            return
        if pod.started_at is not None:
            self._spend(pod, self._now)
        if isinstance(pod, PrefillPod):
            self._prefill.remove(pod)
        else:
            self._decode.remove(pod)
        self._place()

    def _spend(self, pod: Pod, until: float) -> None:
        end = self._workload.seconds
        seconds = min(until, end) - min(pod.started_at or 0.0, end)
        self.outcome.gpu_hours += seconds / 3600

    def _place(self) -> None:
        """Give free GPUs to the pods that have waited longest."""
        everyone: list[Pod] = [*self._prefill, *self._decode]
        free = self._gpus - sum(pod.started_at is not None for pod in everyone)
        waiting = sorted((p for p in everyone if p.started_at is None), key=lambda p: p.asked_at)
        for pod in waiting[: max(0, free)]:
            pod.started_at = self._now
            self._at(self._now + self._start_seconds, self._started, pod)

    def _started(self, pod: Pod) -> None:
        pod.ready_at = self._now
        self._opened()
        if isinstance(pod, PrefillPod) and not pod.draining:
            while self._unplaced:
                pod.queue.append(self._unplaced.popleft())
            self._begin_prefill(pod)
        if isinstance(pod, DecodePod):
            pod.at = self._now

    # What can be seen

    def _scraped(self, pod: Pod) -> Counters:
        found = pod.counters.copy()
        if isinstance(pod, PrefillPod) and pod.current is not None:
            found.busy += self._now - pod.began_at
        return found

    def _observe(self, name: str, seconds: float) -> None:
        self._waits[name].append((self._now, seconds))

    def _view(self) -> FleetView:
        prefill = self._role(self._prefill, "prefill", self._quantile("first"))
        decode = self._role(self._decode, "decode", self._token_seconds())
        rates = [_rates(pod) for pod in self._decode if pod.ready]
        return FleetView(
            prefill=prefill,
            decode=decode,
            resident=sum(rate.resident for rate in rates),
            selected=sum(rate.selected for rate in rates),
            exports=len(self._exports),
            export_seconds=self._now - next(iter(self._exports.values()), self._now),
        )

    def _role(
        self, pods: Iterable[PrefillPod | DecodePod], name: str, latency: tuple[float | None, float]
    ) -> RoleView:
        kept = _kept(pods)
        wait, started = self._quantile(name)
        return RoleView(
            replicas=len(kept),
            pods=tuple(self._pod(pod) for pod in kept if pod.ready),
            placed=sum(pod.started_at is not None for pod in kept),
            pending_seconds=self._now
            - min((p.asked_at for p in kept if p.started_at is None), default=self._now),
            wait=wait,
            started=started,
            latency=latency[0],
            observed=latency[1],
        )

    def _pod(self, pod: PrefillPod | DecodePod) -> PodView:
        rate = _rates(pod)
        if isinstance(pod, PrefillPod):
            running, waiting = int(pod.current is not None), len(pod.queue)
        else:
            running, waiting = len(pod.batch), len(pod.queue) + pod.coming
        return PodView(
            ready_seconds=self._now - (pod.ready_at or 0.0),
            running=running,
            waiting=waiting,
            busy=min(1.0, rate.busy),
            prompt_tokens=rate.prompt_tokens,
            answer_tokens=rate.answer_tokens,
            network=rate.network,
            fetched=rate.fetched,
        )

    def _quantile(self, name: str) -> tuple[float | None, float]:
        """90 % quantile in the window, and observations a second."""
        seen = self._waits[name]
        while seen and seen[0][0] < self._now - WINDOW_SECONDS:
            seen.popleft()
        if not seen:
            return None, 0.0
        values = sorted(value for _, value in seen)
        return values[int(0.9 * (len(values) - 1))], len(values) / WINDOW_SECONDS

    def _token_seconds(self) -> tuple[float | None, float]:
        """Of the tokens of all pods now; a pod's tokens of one step take equally long."""
        seen = sorted(
            (pod.steps[len(pod.batch)].seconds, len(pod.batch))
            for pod in self._decode
            if pod.ready and pod.batch
        )
        total = sum(count / seconds for seconds, count in seen)
        reached = 0.0
        for seconds, count in seen:
            reached += count / seconds
            if reached >= 0.9 * total:
                return seconds, total
        return None, 0.0


def _kept(pods: Iterable[AnyPod]) -> list[AnyPod]:
    return [pod for pod in pods if not pod.draining]


def _rates(pod: Pod) -> Counters:
    """A second, over the window or as long as the pod has been scraped."""
    if len(pod.scrapes) < 2:
        return Counters()
    newest, last = pod.scrapes[-1]
    oldest, first = next(
        (at, counters) for at, counters in pod.scrapes if at >= newest - WINDOW_SECONDS
    )
    seconds = max(newest - oldest, SCRAPE_SECONDS)
    return Counters(
        **{name: (value - getattr(first, name)) / seconds for name, value in vars(last).items()}
    )
