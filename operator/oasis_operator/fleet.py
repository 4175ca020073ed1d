"""Metrics about every OasisDeployment, read from the statuses when Prometheus asks.

Only the replica that leads has them. Their labels are ``oasiskv_namespace`` and
``oasiskv_deployment``, because a scrape sets ``namespace`` to that of the operator's own pod.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from oasis_operator.cluster.store import Store
from oasis_operator.desired.metadata import Component, Manifest
from oasis_operator.metrics import OF

_CONDITION = {"True": 1.0, "False": 0.0}
_UNKNOWN = -1.0
_STATES = {"desired": "desiredReplicas", "ready": "readyReplicas"}


class Fleet(Collector):
    """Conditions and pods of all OasisDeployments in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Two families, from what the store holds now."""
        conditions = GaugeMetricFamily(
            "oasis_deployment_condition",
            "Condition of an OasisDeployment by type: 1 True, 0 False, -1 Unknown.",
            labels=[*OF, "type"],
        )
        replicas = GaugeMetricFamily(
            "oasis_deployment_replicas",
            "Pods of an OasisDeployment by component and state: desired, ready.",
            labels=[*OF, "component", "state"],
        )
        for key in self._store.resources():
            body = self._store.resource(key)
            if body is not None:
                _add(conditions, replicas, body)
        yield conditions
        yield replicas


def _add(conditions: GaugeMetricFamily, replicas: GaugeMetricFamily, body: Manifest) -> None:
    where = [body["metadata"]["namespace"], body["metadata"]["name"]]
    status: dict[str, Any] = body.get("status") or {}
    for condition in status.get("conditions") or []:
        value = _CONDITION.get(condition["status"], _UNKNOWN)
        conditions.add_metric([*where, condition["type"]], value)
    for component in Component:
        role = status.get(component.value) or {}
        for state, field in _STATES.items():
            if field in role:
                replicas.add_metric([*where, component.value, state], float(role[field]))
