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


def test_an_older_version_never_replaces_a_newer_one() -> None:
    store = Store()
    store.keep_object(service("9"))
    store.keep_object(service("7"))
    live = store.observed(KEY, "uid-1").objects[SERVICE]
    assert live["metadata"]["resourceVersion"] == "9"


def test_managed_fields_are_held_only_where_others_wrote_content() -> None:
    store = Store()
    store.keep_object(service())
    assert "managedFields" not in store.observed(KEY, "uid-1").objects[SERVICE]["metadata"]
    body = service()
    fields = {"f:spec": {"f:type": {}}}
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
    store.drop_object(service(uid="s-1"))
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
