"""Means of queries, by lane."""

from __future__ import annotations

import numpy as np
import pytest

from oasis_runtime.core.smoothing import QueryMeans
from tests.unit.core.world import F32, small_geometry

GEOMETRY = small_geometry(slots=8)
SHAPE = (GEOMETRY.heads, GEOMETRY.group, GEOMETRY.dim)


def queries(count: int, seed: int) -> F32:
    return np.random.default_rng(seed).standard_normal((count, *SHAPE), np.float32)


@pytest.mark.parametrize("lanes", [[2], [2, 0]])
def test_a_mean_begins_with_the_first_query_and_weighs_the_newest_most(lanes: list[int]) -> None:
    means, where = QueryMeans(4, GEOMETRY, 0.5), np.array(lanes, np.int32)
    first, second, third = (queries(len(lanes), seed) for seed in range(3))
    assert np.array_equal(means.blend(1, where, np.ones(len(lanes), bool), first), first)
    means.blend(1, where, None, second)
    found = means.blend(1, where, None, third)
    assert found == pytest.approx(0.25 * first + 0.25 * second + 0.5 * third, abs=1e-5)


def test_lanes_and_layers_have_means_of_their_own() -> None:
    means = QueryMeans(4, GEOMETRY, 0.5)
    new = np.ones(1, bool)
    asked = {(layer, lane): queries(1, 4 * layer + lane) for layer in (0, 1) for lane in (0, 3)}
    for (layer, lane), query in asked.items():
        means.blend(layer, np.array([lane], np.int32), new, query)
    for (layer, lane), query in asked.items():
        found = means.blend(layer, np.array([lane], np.int32), None, np.zeros_like(query))
        assert found == pytest.approx(query / 2)


def test_only_the_lane_of_a_new_request_begins_again() -> None:
    means, where = QueryMeans(4, GEOMETRY, 0.5), np.array([1, 2], np.int32)
    old, new = queries(2, 0), queries(2, 1)
    means.blend(0, where, np.ones(2, bool), old)
    found = means.blend(0, where, np.array([False, True]), new)
    assert found[0] == pytest.approx((old[0] + new[0]) / 2)
    assert np.array_equal(found[1], new[1])


def test_the_caller_keeps_its_queries() -> None:
    means, query = QueryMeans(4, GEOMETRY, 0.5), queries(1, 0)
    before = query.copy()
    for _ in range(2):
        means.blend(0, np.zeros(1, np.int32), None, query)
    assert np.array_equal(query, before)


def test_a_weight_of_one_takes_queries_as_they_are() -> None:
    means, query = QueryMeans(4, GEOMETRY, 1.0), queries(2, 0)
    assert means.blend(0, np.array([0, 1], np.int32), None, query) is query
