"""What the operator publishes before it has done anything."""

from __future__ import annotations

from typing import get_args

from prometheus_client import Counter
from prometheus_client.samples import Sample

from oasis_operator.autoscaling.reason import Reason
from oasis_operator.metrics import WRITES, OperatorMetrics, Result

OF_A_DEPLOYMENT = {"oasis_scale_decisions"}
"""Known only when there is an OasisDeployment that scales."""


def counted(metrics: OperatorMetrics, name: str) -> list[Sample]:
    (family,) = [found for found in metrics.registry.collect() if found.name == name]
    return [sample for sample in family.samples if sample.name.endswith("_total")]


def test_every_counter_begins_at_zero() -> None:
    metrics = OperatorMetrics()
    for metric in vars(metrics).values():
        if isinstance(metric, Counter):
            (described,) = metric.describe()
            values = [sample.value for sample in counted(metrics, described.name)]
            assert (set(values) == {0}) is (described.name not in OF_A_DEPLOYMENT), described.name


def test_results_and_writes_are_all_there() -> None:
    metrics = OperatorMetrics()
    results = [s.labels["result"] for s in counted(metrics, "oasis_operator_reconciles")]
    writes = [
        (s.labels["kind"], s.labels["verb"]) for s in counted(metrics, "oasis_operator_writes")
    ]
    assert sorted(results) == sorted(get_args(Result))
    assert sorted(writes) == sorted(WRITES)


def test_decisions_about_a_role_begin_at_zero_when_it_scales() -> None:
    metrics = OperatorMetrics()
    metrics.scales("team", "chat", "decode")
    found = {s.labels["reason"]: s.value for s in counted(metrics, "oasis_scale_decisions")}
    assert found == dict.fromkeys(Reason, 0.0)
