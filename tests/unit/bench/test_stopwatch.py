"""The parts that the time of a step is divided among."""

from __future__ import annotations

import threading

import pytest

from bench.turns.stopwatch import Part, Stopwatch


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(clock: Clock) -> Stopwatch:
    return Stopwatch(clock)


def test_time_belongs_to_the_innermost_function(clock: Clock, watch: Stopwatch) -> None:
    kernel = watch.timed(Part.ATTENTION, lambda: clock.pass_by(5))

    def forward() -> None:
        clock.pass_by(1)
        kernel()
        clock.pass_by(2)

    watch.start()
    watch.timed(Part.MODEL, forward)()
    assert (watch.seconds[Part.MODEL], watch.seconds[Part.ATTENTION]) == (3, 5)


def test_the_parts_add_up_to_the_whole(clock: Clock, watch: Stopwatch) -> None:
    watch.start()
    clock.pass_by(1)
    watch.timed(Part.SAMPLING, lambda: clock.pass_by(2))()
    clock.pass_by(4)
    watch.stop()
    assert sum(watch.seconds.values()) == 7
    assert watch.seconds[Part.REST] == 5


def test_time_before_the_start_does_not_count(clock: Clock, watch: Stopwatch) -> None:
    clock.pass_by(9)
    watch.start()
    watch.stop()
    assert sum(watch.seconds.values()) == 0


def test_a_function_that_raises_has_ended(clock: Clock, watch: Stopwatch) -> None:
    def fail() -> None:
        clock.pass_by(1)
        raise TimeoutError

    watch.start()
    with pytest.raises(TimeoutError):
        watch.timed(Part.AUDIT, fail)()
    clock.pass_by(2)
    watch.stop()
    assert (watch.seconds[Part.AUDIT], watch.seconds[Part.REST]) == (1, 2)


def test_results_and_arguments_go_through(watch: Stopwatch) -> None:
    watch.start()
    assert watch.timed(Part.BEGIN_END, divmod)(7, 2) == (3, 1)


def test_another_threads_time_is_refused(watch: Stopwatch) -> None:
    refused: list[RuntimeError] = []

    def call() -> None:
        try:
            watch.timed(Part.BEGIN_END, divmod)(7, 2)
        except RuntimeError as error:
            refused.append(error)

    watch.start()
    other = threading.Thread(target=call)
    other.start()
    other.join()
    assert len(refused) == 1
