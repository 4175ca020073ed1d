"""What holds for every load and every spec."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from oasis_operator.autoscaling.allocation import Pair, allocate, allowed, coverage, gpus
from oasis_operator.autoscaling.decide import Decision, decide
from oasis_operator.autoscaling.history import History
from oasis_operator.autoscaling.measured import Fleet, Latency, Ratio
from oasis_operator.autoscaling.policy import Bounds, ScalingSpec
from tests.unit.operator.autoscaling.make import (
    OLD,
    STEP,
    decode,
    fleet,
    pair,
    prefill,
    spec,
    watched,
)

CALM = watched(fleet())
counts = st.integers(1, 12)
bounds = st.builds(
    lambda least, more, gpus: Bounds(least, least + more, gpus),
    st.integers(1, 3),
    st.integers(0, 12),
    st.integers(1, 4),
)
ratios = st.tuples(
    st.sampled_from([Fraction(0), Fraction(1, 8), Fraction(1, 2)]),
    st.sampled_from([None, Fraction(1), Fraction(4)]),
)
specs = st.builds(
    lambda prefills, decodes, budget, ratio: spec(
        prefill=prefills,
        decode=decodes,
        gpu_budget=budget,
        least_ratio=ratio[0],
        most_ratio=ratio[1],
    ),
    bounds,
    bounds,
    st.none() | st.integers(8, 40),
    ratios,
)
numbers = st.none() | st.just(math.nan) | st.floats(0, 100)
fleets = st.builds(
    lambda p, d, load, requests, exports, age, hit, tpot, wait: fleet(
        prefill=prefill(p, load, queue=Latency(wait, 1.0)),
        decode=decode(d, requests, latency=Latency(tpot, 1.0)),
        exports=exports,
        export_seconds=age,
        hit=Ratio(hit, 1.0),
    ),
    counts,
    counts,
    st.floats(0, 30),
    st.floats(0, 300),
    numbers,
    numbers,
    st.none() | st.floats(0, 1),
    st.none() | st.floats(0.001, 1),
    st.none() | st.floats(0, 30),
)


def feasible(obeyed: ScalingSpec) -> bool:
    one = Pair(1, 1)
    return allocate(one, one, obeyed) is not None


@given(st.lists(fleets, min_size=1, max_size=5), specs)
def test_never_over_budget_bounds_or_ratio(seen: list[Fleet], obeyed: ScalingSpec) -> None:
    history = History()
    for i, measured in enumerate(seen):
        found = decide(measured, obeyed, history, i * STEP)
        history = found.history
        got = Pair(*pair(found))
        if feasible(obeyed):
            assert allowed(got, obeyed)
            if obeyed.gpu_budget is not None:
                assert gpus(got, obeyed) <= obeyed.gpu_budget
        else:
            assert measured.prefill is not None
            assert got == Pair(measured.prefill.replicas, measured.decode.replicas)


@given(counts, counts, counts, counts, specs)
def test_an_allocation_is_the_best_there_is(
    p: int, d: int, now_p: int, now_d: int, obeyed: ScalingSpec
) -> None:
    wanted, current = Pair(p, d), Pair(now_p, now_d)
    every = [
        candidate
        for x in range(1, 16)
        for y in range(1, 16)
        if allowed(candidate := Pair(x, y), obeyed)
    ]
    found = allocate(wanted, current, obeyed)
    if not every:
        assert found is None
        return
    assert found is not None
    best = max(coverage(candidate, wanted) for candidate in every)
    if found == current:
        assert coverage(found, wanted) >= 0.9 * best
    else:
        assert coverage(found, wanted) == best
        cheaper = [c for c in every if gpus(c, obeyed) < gpus(found, obeyed)]
        assert not any(covers(c, found, wanted) for c in cheaper)


def covers(one: Pair, other: Pair, wanted: Pair) -> bool:
    """Whether ``one`` has of each role all that ``other`` has and that is wanted."""
    return one.decode >= min(other.decode, wanted.decode) and one.prefill >= min(
        other.prefill, wanted.prefill
    )


@given(fleets, st.sampled_from(["exports", "hit", "prefill", "decode"]))
def test_missing_data_changes_no_replicas(measured: Fleet, gap: str) -> None:
    assert measured.prefill is not None
    blind = {
        "exports": replace(measured, exports=math.nan),
        "hit": replace(measured, hit=Ratio(None, None)),
        "prefill": replace(measured, prefill=replace(measured.prefill, pods=())),
        "decode": replace(
            measured,
            decode=replace(
                measured.decode,
                pods=tuple(replace(pod, running=None) for pod in measured.decode.pods),
            ),
        ),
    }[gap]
    found = decide(blind, spec(), CALM, OLD)
    assert found.held is not None
    assert pair(found) == (measured.prefill.replicas, measured.decode.replicas)
    assert found.history == CALM


def at_rest(load: float, requests: float, p: int, d: int, steps: int) -> list[Decision]:
    """A fleet under a constant load whose replicas follow every decision at once."""
    history, found = History(), []
    for i in range(steps):
        slow = 0.02 + 0.002 * requests / d
        wait = 5.0 if load / p > 0.9 else 0.1
        measured = fleet(
            prefill=prefill(p, load, queue=Latency(wait, 1.0)),
            decode=decode(d, requests, latency=Latency(slow, 10.0)),
        )
        decision = decide(measured, spec(), history, i * STEP)
        history = decision.history
        p, d = pair(decision)
        found.append(decision)
    return found


@settings(max_examples=25)
@given(st.floats(0, 12), st.floats(0, 120), counts, counts)
def test_a_constant_load_ends_at_one_fleet_and_turns_back_at_most_once(
    load: float, requests: float, p: int, d: int
) -> None:
    found = [pair(decision) for decision in at_rest(load, requests, p, d, 240)]
    assert len(set(found[-60:])) == 1
    for role in (0, 1):
        moves = [b[role] - a[role] for a, b in itertools.pairwise(found) if a[role] != b[role]]
        assert sum((a > 0) != (b > 0) for a, b in itertools.pairwise(moves)) <= 1


@given(counts, st.floats(0, 100), st.floats(0, 100))
def test_more_requests_never_mean_fewer_decode_pods(d: int, one: float, other: float) -> None:
    less, more = sorted((one, other))

    def pods(requests: float) -> int:
        return decide(fleet(decode=decode(d, requests)), spec(), CALM, OLD).decode.replicas

    assert pods(less) <= pods(more)


@given(counts, st.floats(0, 100), st.floats(0, 1), st.floats(0, 1))
def test_a_worse_hit_rate_never_means_fewer_decode_pods(
    d: int, requests: float, one: float, other: float
) -> None:
    worse, better = sorted((one, other))

    def pods(hit: float) -> int:
        measured = fleet(decode=decode(d, requests), hit=Ratio(hit, 1.0))
        return decide(measured, spec(), CALM, OLD).decode.replicas

    assert pods(better) <= pods(worse)


@given(counts, counts, st.floats(0, 10), st.floats(0, 10))
def test_a_longer_queue_never_means_fewer_prefill_pods(
    p: int, busy: int, one: float, other: float
) -> None:
    less, more = sorted((one, other))

    def pods(waiting: float) -> int:
        role = prefill(p, float(busy))
        role = replace(role, pods=tuple(replace(pod, waiting=waiting) for pod in role.pods))
        decision = decide(fleet(prefill=role), spec(), CALM, OLD)
        assert decision.prefill is not None
        return decision.prefill.replicas

    assert pods(less) <= pods(more)
