"""What ``kubectl get odep`` says of a deployment that serves."""

from __future__ import annotations

import pytest

from testbed import versions
from tests.e2e.served import Served


@pytest.mark.parametrize("kind", ["Ready", "PrefillReady", "DecodeReady", "RouterReady"])
def test_its_conditions_are_true(disaggregated: Served, kind: str) -> None:
    condition = disaggregated.condition(kind)
    assert condition["status"] == "True"
    assert condition["message"]


def test_its_row_says_what_serves_where(disaggregated: Served) -> None:
    heads, row = (
        line.split() for line in disaggregated.kubectl("get", "odep", "demo").splitlines()
    )
    # Mode and Hit are empty before the first traffic, so columns are compared by their value.
    assert heads == [
        "NAME",
        "MODEL",
        "READY",
        "REASON",
        "PREFILL",
        "DECODE",
        "MODE",
        "HIT",
        "AGE",
    ]
    assert row[:6] == ["demo", versions.MODEL_NAME, "True", "Serving", "1/1", "1/1"]
    wide = disaggregated.kubectl("get", "odep", "demo", "-o", "wide")
    assert disaggregated.endpoint() in wide.split()


def test_its_endpoint_lists_the_model(disaggregated: Served) -> None:
    models = disaggregated.client().models.list().data
    assert [model.id for model in models] == ["smollm2-135m-instruct"]
