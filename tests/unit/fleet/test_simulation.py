"""The simulated fleet works off what comes, in the time that its hardware takes."""

from __future__ import annotations

import pytest

from bench.fleet import hardware
from bench.fleet.policies import Oasis, Static
from bench.fleet.simulation import START_SECONDS, Outcome, Policy, Simulation
from bench.fleet.view import FleetView, Replicas
from bench.fleet.workload import Arrival, Workload, trace


def workload(every: float, seconds: float = 600.0, prompt: int = 8000) -> Workload:
    count = int(seconds / every)
    arrivals = (Arrival(i * every, prompt, 200) for i in range(count))
    return Workload("even", seconds, tuple(arrivals))


def run(work: Workload, policy: Policy, start: Replicas, gpus: int = 20) -> Outcome:
    return Simulation(work, policy, start, gpus).run()


def test_the_trace_is_the_recorded_hour() -> None:
    found = trace()
    assert len(found) == 12031
    assert 3500 < found[-1].at < 3600


def test_a_fleet_with_room_keeps_the_slo() -> None:
    found = run(workload(1.0), Static(Replicas(4, 2)), Replicas(4, 2))
    assert (found.requests, found.violations) == (600, 0)


def test_a_fleet_without_room_does_not() -> None:
    prefill = hardware.prefill_seconds(8000)
    found = run(workload(prefill / 2), Static(Replicas(1, 2)), Replicas(1, 2))
    assert found.violated > 0.5


def test_gpu_hours_are_those_of_the_pods_until_the_end() -> None:
    found = run(workload(1.0), Static(Replicas(4, 2)), Replicas(4, 2))
    assert found.gpu_hours == pytest.approx(6 * 600 / 3600)


def test_a_pod_that_starts_costs_before_it_serves() -> None:
    found = run(workload(1.0), Static(Replicas(5, 2)), Replicas(4, 2))
    assert found.gpu_hours == pytest.approx((6 * 600 + 585) / 3600)
    assert START_SECONDS > 0


def test_there_are_never_more_pods_than_gpus() -> None:
    found = run(workload(1.0), Static(Replicas(30, 30)), Replicas(2, 2), gpus=10)
    assert found.gpu_hours <= 10 * 600 / 3600 + 1e-9


def test_more_misses_make_slower_steps() -> None:
    few, many = hardware.steps(hardware.MISSES), hardware.steps(hardware.MISSES_UNPREDICTED)
    assert many[hardware.MAX_REQUESTS].seconds > few[hardware.MAX_REQUESTS].seconds
    assert many[1].seconds == few[1].seconds


class Watching:
    """Keeps what a policy is shown."""

    def __init__(self) -> None:
        self.views: list[FleetView] = []

    def replicas(self, view: FleetView, now: float) -> Replicas:  # noqa: ARG002
        self.views.append(view)
        return Replicas(4, 2)


def test_a_policy_sees_the_rates_that_there_are() -> None:
    watching = Watching()
    run(workload(1.0), watching, Replicas(4, 2))
    last = watching.views[-1]
    tokens = sum(pod.prompt_tokens for pod in last.prefill.pods)
    busy = sum(pod.busy for pod in last.prefill.pods)
    assert tokens == pytest.approx(8000, rel=0.1)
    assert busy == pytest.approx(hardware.prefill_seconds(8000), rel=0.1)
    assert last.prefill.started == pytest.approx(1.0, rel=0.1)
    assert last.decode.latency == pytest.approx(hardware.step(2, 0.05).seconds, rel=0.1)


def test_the_operators_decision_serves_a_load_that_its_start_could_not() -> None:
    prefill = hardware.prefill_seconds(8000)
    work = workload(prefill / 3, seconds=1200.0)
    alone = run(work, Static(Replicas(1, 1)), Replicas(1, 1))
    scaled = run(work, Oasis(20), Replicas(1, 1))
    assert scaled.violated < alone.violated / 2
