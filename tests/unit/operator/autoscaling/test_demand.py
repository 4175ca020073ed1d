"""What makes a role grow or shrink."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oasis_operator.autoscaling.measured import Latency, Link, Ratio, RoleSignals
from oasis_operator.autoscaling.reason import Reason
from tests.unit.operator.autoscaling.make import decided, decode, fleet, pair, prefill, spec


def with_pods(role: RoleSignals, **fields: object) -> RoleSignals:
    return replace(role, pods=tuple(replace(pod, **fields) for pod in role.pods))  # type: ignore[arg-type]


def test_a_fleet_that_fits_stays() -> None:
    found = decided(fleet())
    assert pair(found) == (1, 1)
    assert found.held is None
    assert found.notices == ()


def test_prefill_follows_the_prompt_tokens_that_come() -> None:
    found = decided(fleet(prefill=prefill(2, load=1.9)))
    assert found.prefill is not None
    assert (found.prefill.replicas, found.prefill.reason) == (3, Reason.LOAD)


def test_prompts_that_wait_add_prefill_pods() -> None:
    busy = prefill(2, load=1.4)
    found = decided(fleet(prefill=with_pods(busy, waiting=20.0)))
    assert found.prefill is not None
    assert found.prefill.replicas > 2
    assert found.prefill.reason is Reason.QUEUE


def test_waiting_for_longer_than_the_slo_leaves_adds_pods() -> None:
    found = decided(fleet(prefill=prefill(2, load=1.0, queue=Latency(3.0, 1.0))))
    assert found.prefill is not None
    assert (found.prefill.replicas, found.prefill.reason) == (3, Reason.QUEUE)


def test_prompts_that_are_long_by_themselves_add_no_pods_but_a_notice() -> None:
    found = decided(fleet(prefill=prefill(1, load=0.5, latency=Latency(9.0, 1.0))))
    assert pair(found) == (1, 1)
    assert [notice.reason for notice in found.notices] == ["PromptsTakeLonger"]


def test_decode_follows_the_requests_it_has() -> None:
    found = decided(fleet(decode=decode(2, requests=20)))
    assert (found.decode.replicas, found.decode.reason) == (3, Reason.LOAD)


def test_pods_that_nothing_needed_for_the_window_go() -> None:
    found = decided(fleet(decode=decode(4, requests=4), prefill=prefill(4, load=0.5)))
    assert pair(found) == (3, 3)


@pytest.mark.parametrize(("hit", "pods"), [(1.0, 4), (0.95, 4), (0.6, 6), (0.2, 8)])
def test_a_decode_pod_carries_less_the_more_pages_it_misses(hit: float, pods: int) -> None:
    found = decided(fleet(decode=decode(4, requests=28), hit=Ratio(hit, 1.0)))
    assert found.decode.replicas == pods


def test_a_better_hit_rate_than_planned_saves_a_pod() -> None:
    busy = decode(10, requests=68)
    planned = decided(fleet(decode=busy, hit=Ratio(0.95, 1.0)))
    better = decided(fleet(decode=busy, hit=Ratio(1.0, 1.0)))
    assert planned.decode.replicas == 10
    assert better.decode.replicas == 10
    lighter = decode(10, requests=57.75)
    assert decided(fleet(decode=lighter, hit=Ratio(0.95, 1.0))).decode.replicas == 10
    assert decided(fleet(decode=lighter, hit=Ratio(1.0, 1.0))).decode.replicas == 9


def test_requests_decoded_densely_count_into_what_a_pod_carries() -> None:
    found = decided(fleet(decode=decode(4, requests=28), dense=Ratio(1.0, 1.0)))
    assert found.decode.replicas == 7


def test_slow_tokens_lower_what_a_pod_carries() -> None:
    found = decided(fleet(decode=decode(4, requests=32, latency=Latency(0.1, 100.0))))
    assert found.decode.replicas > 4
    assert found.history.decode.capacity is not None
    assert found.history.decode.capacity < 1


def test_answers_that_take_twice_too_long_count_half() -> None:
    slow = decode(4, requests=32, latency=Latency(0.1, 100.0))
    found = decided(fleet(decode=slow))
    assert found.history.decode.capacity == pytest.approx(8 * 0.5 / 14)
    assert found.decode.replicas == 8  # 16 at once, of which a pod is to have 2


def test_a_saturated_fetch_link_adds_decode_pods() -> None:
    slow = with_pods(decode(4, requests=16), links={"host_fast": Link(9e9, 1e10)})
    found = decided(fleet(decode=slow, prefill=prefill(4, load=2.5)))
    assert (found.decode.replicas, found.decode.reason) == (6, Reason.FETCH_LINK)
    assert found.prefill is not None
    assert found.prefill.replicas == 4


def test_a_saturated_export_link_adds_prefill_pods() -> None:
    slow = with_pods(prefill(4, load=2.0), links={"network": Link(9e9, 1e10)})
    found = decided(fleet(decode=decode(4, requests=30), prefill=slow))
    assert found.prefill is not None
    assert (found.prefill.replicas, found.prefill.reason) == (6, Reason.EXPORT_LINK)
    assert found.decode.replicas == 4


def test_the_busiest_link_counts_and_not_the_mean() -> None:
    role = decode(4, requests=30)
    pods = (replace(role.pods[0], links={"network": Link(9e9, 1e10)}), *role.pods[1:])
    found = decided(fleet(decode=replace(role, pods=pods)))
    assert found.decode.reason is Reason.FETCH_LINK


def test_a_link_whose_capacity_nobody_knows_asks_for_nothing() -> None:
    unknown = with_pods(decode(), links={"network": Link(9e9, -1.0)})
    assert decided(fleet(decode=unknown)).held is None
    assert decided(fleet(decode=unknown)).decode.replicas == 1


def test_exports_that_wait_add_decode_pods_and_no_prefill_pods() -> None:
    blocked = prefill(2, load=2.0, queue=Latency(30.0, 1.0))
    found = decided(
        fleet(
            prefill=with_pods(blocked, waiting=10.0),
            decode=decode(2, requests=14),
            exports=40.0,
            export_seconds=25.0,
        )
    )
    assert found.prefill is not None
    assert (found.prefill.replicas, found.prefill.reason) == (2, Reason.EXPORTS)
    assert (found.decode.replicas, found.decode.reason) == (3, Reason.EXPORTS)


def test_exports_that_are_being_read_are_no_problem() -> None:
    found = decided(fleet(exports=4.0, export_seconds=100.0))
    assert pair(found) == (1, 1)


def test_no_decode_pod_goes_while_the_fast_tier_is_too_small() -> None:
    found = decided(fleet(decode=decode(4, requests=4), hit=Ratio(0.8, 1.0), slots=Ratio(1.0, 1.0)))
    assert (found.decode.replicas, found.decode.reason) == (4, Reason.FAST_TIER)


def test_a_full_fast_tier_that_hits_is_no_reason_to_keep_pods() -> None:
    assert decided(fleet(decode=decode(4, requests=4), slots=Ratio(1.0, 1.0))).decode.replicas == 3


def test_decode_pods_alone_are_scaled_by_their_requests() -> None:
    found = decided(fleet(decode=decode(1, requests=17), prefill=None), spec(prefill=None))
    assert found.prefill is None
    assert found.decode.replicas == 3
