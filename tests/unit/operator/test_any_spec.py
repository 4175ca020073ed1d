"""Whatever is stored becomes objects or a sentence, never another exception."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from oasis_operator.api.resource import InvalidSpecError, OasisDeployment
from oasis_operator.desired.override import OverrideError
from tests.unit.operator.make import built
from tests.unit.operator.specs import mutated, specs


def carry_out(spec: dict[str, Any]) -> None:
    metadata = {"name": "chat", "namespace": "team", "uid": "u", "generation": 1}
    try:
        od = OasisDeployment.parse({"metadata": metadata, "spec": spec})
        json.dumps(built(od).objects)
    except (InvalidSpecError, OverrideError):
        pass  # Both are sentences for a condition.


UNHURRIED = settings(max_examples=30, suppress_health_check=list(HealthCheck))


@UNHURRIED
@given(specs())
def test_any_spec_of_the_schema(spec: dict[str, Any]) -> None:
    carry_out(spec)


@UNHURRIED
@given(mutated())
def test_any_spec_that_the_schema_would_not_let_in(spec: dict[str, Any]) -> None:
    carry_out(spec)


@pytest.mark.parametrize("spec", [None, [], "spec", 1, {"model": {}}])
def test_a_spec_that_is_none(spec: Any) -> None:
    carry_out(spec)
