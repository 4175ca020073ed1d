"""The workloads that every policy runs, with one configuration for all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.fleet.hardware import MISSES, MISSES_UNPREDICTED
from bench.fleet.workload import Arrival, Workload, recorded, shaped

SCALE = 3
"""Times the recorded rate, so that the fleet has some twenty pods."""
HOUR = 3600.0


@dataclass(frozen=True)
class Scenario:
    """A workload, and how well pages are predicted in it."""

    workload: Workload
    told: str
    miss: Callable[[float], float] = lambda _: MISSES


def scenarios(base: Sequence[Arrival], draw: int) -> tuple[Scenario, ...]:
    """All of them; another ``draw`` has other arrivals and sizes."""
    mean = SCALE * len(base) / base[-1].at

    def day(at: float) -> float:
        return mean * (1 - 0.75 * math.cos(2 * math.pi * at / (1.5 * HOUR)))

    def bursts(at: float) -> float:
        """Three times from 0.7 to 1.6 of the mean: up in 3 minutes, 6 minutes there, and down."""
        near = min(abs(at - middle) for middle in (800.0, 1700.0, 2800.0))
        return mean * (0.7 + 0.9 * min(1.0, max(0.0, (360 - near) / 180)))

    def long_answers(at: float) -> float:
        """Share of requests with long answers: between 15 % and 85 %, in periods of 40 minutes."""
        return 0.5 + 0.35 * math.sin(2 * math.pi * at / 2400)

    return (
        Scenario(
            recorded(f"recorded{draw}", base, SCALE, seed=100 * draw + 1), "the recorded hour"
        ),
        Scenario(
            shaped(f"day{draw}", base, 1.5 * HOUR, day, 1.75 * mean, seed=100 * draw + 2),
            "a day in 90 minutes, from a quarter of the mean to 1.75 times",
        ),
        Scenario(
            shaped(f"bursts{draw}", base, 0.9 * HOUR, bursts, 1.6 * mean, seed=100 * draw + 3),
            "three bursts from 0.7 to 1.6 of the mean within 3 minutes",
        ),
        Scenario(
            shaped(
                f"mix{draw}",
                base,
                2400.0,
                lambda _: mean,
                mean,
                seed=100 * draw + 4,
                share=long_answers,
            ),
            "long prompts and long answers by turns",
        ),
        Scenario(
            shaped(
                f"unpredicted{draw}",
                base,
                0.75 * HOUR,
                lambda _: 1.3 * mean,
                1.3 * mean,
                seed=100 * draw + 5,
            ),
            "1.3 times the mean, and for 15 minutes three times as many pages miss",
            lambda at: MISSES_UNPREDICTED if 900 <= at < 1800 else MISSES,
        ),
    )
