from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from oasis_operator.reconcile.dropped import dropped
from oasis_operator.reconcile.plan import covers
from tests.unit.operator.specs import JSON


@pytest.mark.parametrize(
    ("live", "fields"),
    [
        ({"spec": {"volumes": [{"name": "a", "image": {"reference": "x"}}]}}, []),
        ({"spec": {"volumes": [{"name": "a", "emptyDir": {}}]}}, ["spec.volumes.0.image"]),
        ({"spec": {"volumes": []}}, ["spec.volumes"]),
        ({"spec": {}}, ["spec.volumes"]),
        ({}, ["spec"]),
    ],
)
def test_fields_that_are_not_there_are_named(live: Any, fields: list[str]) -> None:
    wanted = {"spec": {"volumes": [{"name": "a", "image": {"reference": "x"}}]}}
    assert dropped(wanted, live) == fields


def test_all_of_them_are_named() -> None:
    wanted = {"a": 1, "b": {"c": 2, "d": 3}}
    assert dropped(wanted, {"b": {"d": 3}}) == ["a", "b.c"]


@given(JSON, JSON)
def test_it_finds_something_exactly_where_something_is_missing(wanted: Any, live: Any) -> None:
    assert (dropped({"a": wanted}, {"a": live}) == []) == covers({"a": wanted}, {"a": live})
