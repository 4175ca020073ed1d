"""Requests over time: sizes from a recorded trace, arrivals by a profile.

``conversation_trace.csv.gz`` has time, input and output length of the 12,031 requests of one hour
of conversations that the Mooncake authors published (FAST'25, Apache-2.0); the ids of their prefix
blocks are left out.
"""

from __future__ import annotations

import csv
import gzip
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

TRACE = Path(__file__).parent / "conversation_trace.csv.gz"


@dataclass(frozen=True)
class Arrival:
    """One request: time in seconds, lengths in tokens."""

    at: float
    prompt: int
    answer: int


@dataclass(frozen=True)
class Workload:
    """What happens in one run; nothing arrives after ``seconds``."""

    name: str
    seconds: float
    arrivals: tuple[Arrival, ...]


def trace(path: Path = TRACE) -> tuple[Arrival, ...]:
    """The recorded hour. Its times are whole multiples of 3 s."""
    with gzip.open(path, "rt") as file:
        return tuple(
            Arrival(
                int(row["timestamp_ms"]) / 1000, int(row["input_tokens"]), int(row["output_tokens"])
            )
            for row in csv.DictReader(file)
        )


def recorded(name: str, base: Sequence[Arrival], scale: int, seed: int) -> Workload:
    """The hour as it was, every request ``scale`` times: with sizes of other requests, and spread
    over the 3 s that times are rounded to."""
    draw = random.Random(seed)
    out = []
    for item in base:
        for copy in range(scale):
            size = item if copy == 0 else draw.choice(base)
            out.append(Arrival(item.at + draw.uniform(0, 3), size.prompt, size.answer))
    out.sort(key=lambda arrival: arrival.at)
    return Workload(name, base[-1].at + 3, tuple(out))


def shaped(
    name: str,
    base: Sequence[Arrival],
    seconds: float,
    rate: Callable[[float], float],
    most: float,
    seed: int,
    share: Callable[[float], float] = lambda _: 0.5,
) -> Workload:
    """Poisson arrivals of a rate that changes.

    Args:
        name: of the workload.
        base: requests whose sizes are drawn.
        seconds: how long.
        rate: time -> requests a second.
        most: no rate is higher.
        seed: of the draws.
        share: time -> share of requests from the half of ``base`` with the longer answers for their
            prompts.
    """
    draw = random.Random(seed)
    by_answer = sorted(base, key=lambda item: item.answer / item.prompt)
    half = len(by_answer) // 2
    prompts, answers = by_answer[:half], by_answer[half:]

    def arrivals() -> Iterator[Arrival]:
        at = 0.0
        while (at := at + draw.expovariate(most)) < seconds:
            if draw.random() * most < rate(at):
                size = draw.choice(answers if draw.random() < share(at) else prompts)
                yield Arrival(at, size.prompt, size.answer)

    return Workload(name, seconds, tuple(arrivals()))
