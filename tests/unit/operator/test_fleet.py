from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry

from oasis_operator.cluster.store import Store
from oasis_operator.fleet import Fleet

CHAT = {"oasiskv_namespace": "team", "oasiskv_deployment": "chat"}


def resource(status: dict[str, Any] | None) -> dict[str, Any]:
    metadata = {"namespace": "team", "name": "chat", "uid": "1", "resourceVersion": "2"}
    return {"metadata": metadata, **({} if status is None else {"status": status})}


def registry(status: dict[str, Any] | None) -> CollectorRegistry:
    store = Store()
    store.keep_resource(resource(status))
    found = CollectorRegistry()
    found.register(Fleet(store))
    return found


def test_a_condition_is_true_false_or_unknown() -> None:
    conditions = [
        {"type": "Ready", "status": "True"},
        {"type": "TransportHealthy", "status": "False"},
        {"type": "SparsityHealthy", "status": "Unknown"},
    ]
    found = registry({"conditions": conditions})
    values = {
        kind: found.get_sample_value("oasis_deployment_condition", {**CHAT, "type": kind})
        for kind in ("Ready", "TransportHealthy", "SparsityHealthy")
    }
    assert values == {"Ready": 1, "TransportHealthy": 0, "SparsityHealthy": -1}


def test_ready_and_desired_pods_are_told_by_component() -> None:
    found = registry({"decode": {"replicas": 2, "readyReplicas": 1, "desiredReplicas": 3}})
    decode = {**CHAT, "component": "decode"}
    samples = {
        state: found.get_sample_value("oasis_deployment_replicas", {**decode, "state": state})
        for state in ("desired", "ready")
    }
    assert samples == {"desired": 3, "ready": 1}


def test_what_the_status_does_not_say_is_no_series() -> None:
    samples = [sample for family in registry(None).collect() for sample in family.samples]
    assert samples == []


def test_a_deployment_that_is_gone_has_no_series() -> None:
    store = Store()
    body = resource({"conditions": [{"type": "Ready", "status": "True"}]})
    store.keep_resource(body)
    store.drop_resource(body)
    assert [sample for family in Fleet(store).collect() for sample in family.samples] == []
