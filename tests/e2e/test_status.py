"""What ``kubectl get odep`` says of a deployment that serves."""

from __future__ import annotations

import pytest

from examples.ask import logbook
from testbed import versions, wait
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


def test_after_traffic_it_tells_mode_and_rates(disaggregated: Served) -> None:
    disaggregated.client().completions.create(
        model="smollm2-135m-instruct", prompt=f"{logbook(100)}\nDay", max_tokens=64, temperature=0
    )
    measured = ("NUMAAligned", "TransportHealthy", "SparsityHealthy")

    def told() -> bool:
        status = disaggregated.status()
        known = all(disaggregated.condition(kind).get("status") != "Unknown" for kind in measured)
        return status.get("mode") == "sparse" and "hitRate" in status and known

    wait.until(told, "conditions from metrics", 90, every=1)
    assert 0 < float(disaggregated.status()["hitRate"].rstrip("%")) <= 100
    for kind in ("NUMAAligned", "TransportHealthy"):
        condition = disaggregated.condition(kind)
        assert condition["status"] == "True", condition
