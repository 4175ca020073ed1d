"""The HorizontalPodAutoscaler that policies are compared with does as the real one."""

from __future__ import annotations

from bench.fleet.hpa import Hpa, wanted_replicas
from bench.fleet.view import PodView, RoleView


def role(replicas: int, *waiting: int) -> RoleView:
    pods = tuple(PodView(600.0, 0, count, 0.0, 0.0, 0.0, 0.0, 0.0) for count in waiting)
    return RoleView(replicas, pods, replicas, 0.0, None, 0.0, None, 0.0)


def values(view: RoleView) -> list[float]:
    return [float(pod.waiting) for pod in view.pods]


def test_replicas_are_in_proportion_to_the_metric() -> None:
    view = role(2, 20, 20)
    assert wanted_replicas(values(view), view, 10) == 4


def test_a_tenth_is_tolerated() -> None:
    view = role(2, 10, 11)
    assert wanted_replicas(values(view), view, 10) == 2


def test_pods_that_are_not_ready_count_as_idle_when_scaling_up() -> None:
    view = role(4, 20, 20)
    assert wanted_replicas(values(view), view, 10) == 4


def test_without_a_metric_nothing_changes() -> None:
    assert wanted_replicas([], role(3), 10) == 3


def autoscaler() -> Hpa:
    return Hpa(lambda pod: pod.waiting, target=10, most=20)


def test_scaling_up_is_at_once_and_by_four_or_double() -> None:
    assert autoscaler().replicas(role(2, 100, 100), 0.0) == 6
    assert autoscaler().replicas(role(8, *(100,) * 8), 0.0) == 16


def test_scaling_down_waits_for_the_most_of_five_minutes() -> None:
    hpa = autoscaler()
    assert hpa.replicas(role(4, 10, 10, 10, 10), 0.0) == 4
    for now in range(15, 300, 15):
        assert hpa.replicas(role(4, 1, 1, 1, 1), float(now)) == 4
    assert hpa.replicas(role(4, 1, 1, 1, 1), 301.0) == 1
