from __future__ import annotations

import copy
from typing import Any

import pytest

from oasis_operator.desired.metadata import Manifest
from oasis_operator.reconcile.conditions import READY, Draft
from oasis_operator.reconcile.observed import ObjectKey
from oasis_operator.reconcile.ownership import (
    NAME_TAKEN,
    WAITING_FOR_DELETION,
    TakenName,
    controlled_by,
    needs,
    with_taken_names,
)
from tests.unit.operator.make import built, deployment, named, router_name

SERVICE = ObjectKey("Service", "chat-router")
OURS = built(deployment())
SERVING = Draft(READY, "True", "Serving", "all pods serve this spec")
STARTING = Draft("DecodeReady", "False", "Starting", "0 of 1")


def service(**metadata: Any) -> Manifest:
    body = copy.deepcopy(named(OURS, *SERVICE))
    body["metadata"] |= metadata
    return body


def reference(**changes: Any) -> Manifest:
    (ours,) = named(OURS, *SERVICE)["metadata"]["ownerReferences"]
    return {**ours, **changes}


def test_what_the_operator_makes_is_controlled_by_its_deployment() -> None:
    assert all(controlled_by(item, "uid-1") for item in OURS.objects)


@pytest.mark.parametrize(
    "references", [[], None, [reference(controller=False)], [reference(uid="uid-0")]]
)
def test_an_object_without_the_right_controller_is_not_ours(references: Any) -> None:
    assert not controlled_by(service(ownerReferences=references), "uid-1")


@pytest.mark.parametrize(
    ("metadata", "leaving"),
    [
        ({"ownerReferences": []}, False),
        ({"ownerReferences": [reference(uid="uid-0")]}, True),
        ({"ownerReferences": [reference(uid="uid-0", name="other")]}, False),
        ({"ownerReferences": [reference(uid="uid-0", kind="Application")]}, False),
        ({"ownerReferences": [reference(uid="uid-0", controller=False)]}, False),
        ({"ownerReferences": [], "deletionTimestamp": "2026-01-01T00:00:00Z"}, True),
    ],
)
def test_what_an_earlier_namesake_left_goes_by_itself_and_what_others_have_does_not(
    metadata: Manifest, leaving: bool
) -> None:
    assert TakenName.of(service(**metadata), "chat", "uid-1") == TakenName(SERVICE, leaving)


def test_pods_need_what_they_run_with_and_what_guards_them() -> None:
    revision = OURS.rollout.target
    decode = f"chat-{revision}-decode"
    assert needs(named(OURS, "Deployment", decode)) >= {
        ObjectKey("ConfigMap", decode),
        ObjectKey("NetworkPolicy", "chat-decode"),
    }
    router = needs(named(OURS, "Deployment", router_name(deployment())))
    assert ObjectKey("ServiceAccount", "chat-router") in router


def test_a_binding_needs_both_that_it_binds() -> None:
    assert needs(named(OURS, "RoleBinding", "chat-router")) == {
        ObjectKey("Role", "chat-router"),
        ObjectKey("ServiceAccount", "chat-router"),
    }


def test_objects_that_others_have_are_told_by_name_with_the_remedy() -> None:
    policy = TakenName(ObjectKey("NetworkPolicy", "chat-decode"), leaving=False)
    going = TakenName(ObjectKey("Role", "chat-router"), leaving=True)
    ready, other = with_taken_names([SERVING, STARTING], [TakenName(SERVICE, False), going, policy])
    assert (ready.status, ready.reason, ready.alarming) == ("False", NAME_TAKEN, True)
    assert "NetworkPolicy chat-decode, Service chat-router" in ready.message
    assert "delete or rename them, or rename the OasisDeployment" in ready.message
    assert other == STARTING


def test_what_goes_by_itself_alarms_nobody() -> None:
    (ready,) = with_taken_names([SERVING], [TakenName(SERVICE, leaving=True)])
    assert (ready.status, ready.reason, ready.alarming) == ("False", WAITING_FOR_DELETION, False)
    assert "Service chat-router" in ready.message


def test_with_nothing_in_the_way_conditions_are_as_they_are() -> None:
    assert with_taken_names([SERVING, STARTING], []) == [SERVING, STARTING]
