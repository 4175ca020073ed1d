from __future__ import annotations

import copy

from oasis_operator.cluster.queue import Key
from oasis_operator.cluster.store import Store
from oasis_operator.desired.metadata import Manifest
from oasis_operator.reconcile.observed import ObjectKey, Observed
from tests.unit.operator.make import built, deployment, named, pod

KEY = Key("team", "chat")
SERVICE = ObjectKey("Service", "chat-router")


def service(version: str = "5", uid: str = "s-1", owner: str = "uid-1") -> Manifest:
    body = copy.deepcopy(named(built(deployment(uid=owner)), *SERVICE))
    body["metadata"] |= {"resourceVersion": version, "uid": uid, "managedFields": [{}]}
    return body


def ports(body: Manifest, port: int) -> Manifest:
    body["spec"]["ports"] = [{"port": port}]
    return body


def test_an_older_version_never_replaces_a_newer_one() -> None:
    store = Store()
    assert store.keep_object(ports(service("9"), 9)) == KEY
    assert store.keep_object(ports(service("7"), 7)) is None
    live = store.observed(KEY, "uid-1").objects[SERVICE]
    assert (live["metadata"]["resourceVersion"], live["spec"]["ports"]) == ("9", [{"port": 9}])


def test_what_only_repeats_what_is_known_is_no_news() -> None:
    store = Store()
    assert store.keep_object(service("5")) == KEY
    assert store.keep_object(service("5")) is None
    assert store.keep_object(service("6")) is None
    live = store.observed(KEY, "uid-1").objects[SERVICE]
    assert live["metadata"]["resourceVersion"] == "6"
    assert store.keep_object(ports(service("7"), 7)) == KEY


def test_a_status_that_nobody_looks_at_is_no_news() -> None:
    store = Store()
    store.keep_object(service("5"))
    assert store.keep_object(service("6") | {"status": {"loadBalancer": {}}}) is None


def test_the_status_of_a_deployment_is_news() -> None:
    store = Store()
    workload = next(item for item in built(deployment()).objects if item["kind"] == "Deployment")
    workload["metadata"] |= {"resourceVersion": "5", "uid": "w-1"}
    assert store.keep_object(workload) == KEY
    later = copy.deepcopy(workload) | {"status": {"readyReplicas": 1}}
    later["metadata"]["resourceVersion"] = "6"
    assert store.keep_object(later) == KEY


def test_a_pod_that_looks_the_same_is_no_news() -> None:
    store = Store()
    store.keep_pod(pod())
    later = pod(hostIP="10.0.0.1")
    later["metadata"]["resourceVersion"] = "6"
    assert store.keep_pod(later) is None
    ready = pod(ready=True)
    ready["metadata"]["resourceVersion"] = "7"
    assert store.keep_pod(ready) == KEY


def test_managed_fields_are_held_only_where_others_wrote_content() -> None:
    store = Store()
    store.keep_object(service())
    assert "managedFields" not in store.observed(KEY, "uid-1").objects[SERVICE]["metadata"]
    body = service("6")
    fields: Manifest = {"f:spec": {"f:type": {}}}
    entry = {"manager": "kubectl-edit", "apiVersion": body["apiVersion"], "fieldsV1": fields}
    body["metadata"]["managedFields"] = [entry]
    store.keep_object(body)
    assert store.observed(KEY, "uid-1").objects[SERVICE]["metadata"]["managedFields"] == [entry]


def test_objects_of_an_earlier_namesake_are_not_ours() -> None:
    store = Store()
    store.keep_object(service(owner="uid-0"))
    assert store.observed(KEY, "uid-1").objects == {}


def test_a_late_deletion_does_not_take_the_successor() -> None:
    store = Store()
    store.keep_object(service(uid="s-2"))
    assert store.drop_object(service(uid="s-1")) is None
    assert SERVICE in store.observed(KEY, "uid-1").objects
    store.drop_object(service(uid="s-2"))
    assert store.observed(KEY, "uid-1").objects == {}


def test_what_a_watch_missed_going_is_gone_after_the_next_list() -> None:
    store = Store()
    store.keep_object(service("5"))
    store.keep_pod(pod())
    assert store.replace_objects("ConfigMap", [], 9) == set()
    assert store.replace_objects("Service", [], 9) == {KEY}
    assert store.replace_pods([], 9) == {KEY}
    assert store.observed(KEY, "uid-1") == Observed()


def test_what_came_after_a_list_was_read_stays() -> None:
    store = Store()
    store.keep_object(service("12"))
    assert store.replace_objects("Service", [], 9) == set()
    assert SERVICE in store.observed(KEY, "uid-1").objects


def test_a_list_brings_what_a_watch_has_not() -> None:
    store = Store()
    body = {"metadata": {"namespace": "team", "name": "chat", "uid": "u", "resourceVersion": "3"}}
    assert store.replace_resources([body], 9) == set()
    assert store.resources() == [KEY]
    assert store.replace_resources([], 9) == {KEY}
    assert store.resource(KEY) is None


def test_pods_are_held_as_what_is_looked_at() -> None:
    store = Store()
    assert store.keep_pod(pod(ready=True)) == KEY
    (view,) = store.observed(KEY, "uid-1").pods
    assert view.ready
    store.drop_pod(pod())
    assert store.observed(KEY, "uid-1").pods == ()
