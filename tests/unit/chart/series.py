"""Every series that Prometheus can have of OasisKV, and its labels.

Engines and routers: recorded expositions, and the engine's declarations for what is published only
once it was counted. Operator: its own registry. Labels of the target come on top.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.parser import text_string_to_metric_families

from oasis_operator.cluster.store import Store
from oasis_operator.desired.metadata import Component
from oasis_operator.fleet import Fleet
from oasis_operator.metrics import OperatorMetrics
from oasis_runtime.contract import Metric
from tests.unit.core.reasons import fallback_reasons

ROOT = Path(__file__).parents[3]
EXPOSITIONS = Path(__file__).parent / "expositions"
TARGET = frozenset({"namespace", "pod", "job", "instance"})
OF_DEPLOYMENT = frozenset({"oasiskv_deployment", "oasiskv_component", "oasiskv_revision"})
"""Made of the pod's labels, by the chart's PodMonitors and the test bed's Prometheus."""
ALERT = frozenset({"alertname", "alertstate", "severity"})

Labels = frozenset[str]


@cache
def labels_by_name() -> dict[str, Labels]:
    """Labels of every series by its name; those that only some have are among them."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for name, labels in _engines_and_routers():
        found[name] |= {*labels, *TARGET, *OF_DEPLOYMENT}
    for name, labels in _operator():
        found[name] |= {*labels, *TARGET}
    found["up"] |= {*TARGET, *OF_DEPLOYMENT}
    found["ALERTS"] |= {*TARGET, *OF_DEPLOYMENT, *ALERT}
    return {name: frozenset(labels) for name, labels in found.items()}


@cache
def values_by_label() -> dict[tuple[str, str], frozenset[str]]:
    """What a label of a series was seen with, or is declared to have. Others may hold anything."""
    found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for file in EXPOSITIONS.glob("*.prom"):
        for family in text_string_to_metric_families(file.read_text()):
            for sample in family.samples:
                for label, value in sample.labels.items():
                    found[sample.name, label].add(value)
    found[Metric.FALLBACKS, "reason"] |= fallback_reasons()
    for name in ("oasis_deployment_replicas", *labels_by_name()):
        found[name, "oasiskv_component"] |= {component.value for component in Component}
    found["oasis_deployment_replicas", "component"] = {component.value for component in Component}
    found["oasis_deployment_replicas", "state"] = {"desired", "ready"}
    found["oasis_deployment_condition", "type"] = condition_types()
    return {key: frozenset(values) for key, values in found.items()}


def condition_types() -> set[str]:
    """The names of conditions: constants of the module that declares them."""
    source = ast.parse((ROOT / "operator/oasis_operator/reconcile/conditions.py").read_text())
    return {
        node.value.value
        for node in source.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def _engines_and_routers() -> Iterator[tuple[str, set[str]]]:
    for file in EXPOSITIONS.glob("*.prom"):
        for family in text_string_to_metric_families(file.read_text()):
            for sample in family.samples:
                yield sample.name, set(sample.labels)
    for name, declared in declared_labels().items():
        yield name, {"model_name", "engine", *declared}


def declared_labels() -> dict[str, set[str]]:
    """Own labels of the engine's families, read from ``SERIES`` without importing vLLM."""
    source = ast.parse((ROOT / "runtime/oasis_runtime/vllm/metrics.py").read_text())
    (series,) = [
        node.value
        for node in source.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id == "SERIES"
    ]
    assert isinstance(series, ast.Dict)
    found: dict[str, set[str]] = {}
    for key, call in zip(series.keys, series.values, strict=True):
        assert isinstance(key, ast.Attribute)
        assert isinstance(call, ast.Call)
        kind, *rest = call.args
        assert isinstance(kind, ast.Name)
        labels = {
            word.value
            for part in rest[1:]
            for word in ast.walk(part)
            if isinstance(word, ast.Constant) and isinstance(word.value, str)
        }
        name = Metric[key.attr].value
        for suffix in ("_bucket", "_sum", "_count") if kind.id == "Histogram" else ("",):
            found[name + suffix] = labels | ({"le"} if suffix == "_bucket" else set())
    return found


MOST_LABELS = 6


def _operator() -> Iterator[tuple[str, set[str]]]:
    """From a registry in which everything was counted once, and of one deployment."""
    metrics = OperatorMetrics()
    for metric in vars(metrics).values():
        if isinstance(metric, Counter | Gauge | Histogram):
            _count_once(metric)
    store = Store()
    store.keep_resource(SERVED)
    for family in (*metrics.registry.collect(), *Fleet(store).collect()):
        for sample in family.samples:
            yield sample.name, set(sample.labels)


def _count_once(metric: Counter | Gauge | Histogram) -> None:
    """A family with labels has no series before; how many it wants, only trying tells."""
    for count in range(1, MOST_LABELS + 1):
        with suppress(ValueError):
            metric.labels(*["x"] * count)


SERVED = {
    "metadata": {"namespace": "team", "name": "chat", "uid": "1", "resourceVersion": "1"},
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "decode": {"readyReplicas": 1, "desiredReplicas": 1},
    },
}
