from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from oasis_operator.reconcile.dropped import dropped
from oasis_operator.reconcile.plan import covers
from tests.unit.operator.specs import JSON


@pytest.mark.parametrize(
    ("live", "field"),
    [
        ({"spec": {"volumes": [{"name": "a", "image": {"reference": "x"}}]}}, None),
        ({"spec": {"volumes": [{"name": "a", "emptyDir": {}}]}}, "spec.volumes.0.image"),
        ({"spec": {"volumes": []}}, "spec.volumes"),
        ({"spec": {}}, "spec.volumes"),
        ({}, "spec"),
    ],
)
def test_the_first_field_that_is_not_there_is_named(live: Any, field: str | None) -> None:
    wanted = {"spec": {"volumes": [{"name": "a", "image": {"reference": "x"}}]}}
    assert dropped(wanted, live) == field


@given(JSON, JSON)
def test_it_finds_something_exactly_where_something_is_missing(wanted: Any, live: Any) -> None:
    assert (dropped({"a": wanted}, {"a": live}) is None) == covers({"a": wanted}, {"a": live})
