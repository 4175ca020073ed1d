"""Trees of fields as an API server writes them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasis_operator.desired.metadata import (
    FIELD_MANAGER,
    HASH_ANNOTATION,
    TEMPLATE_ANNOTATION,
    Manifest,
)
from oasis_operator.reconcile.foreign_fields import (
    outdated_marks,
    taken_over,
    template_written_by_others,
    written_by_others,
)
from oasis_operator.reconcile.observed import ObjectKey
from oasis_operator.reconcile.plan import plan
from tests.unit.operator.make import built, deployment, stored

OURS: Manifest = {"f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:hostname": {}}}}}
PAUSED: Manifest = {"f:spec": {"f:paused": {}}}
RESTARTED: Manifest = {
    "f:spec": {"f:template": {"f:metadata": {"f:annotations": {"f:restartedAt": {}}}}}
}
LABELLED: Manifest = {"f:metadata": {"f:labels": {"f:team": {}}}}
MISLED: Manifest = {"f:metadata": {"f:annotations": {"f:oasiskv.io/wanted-replicas": {}}}}
SIDECAR: Manifest = {
    "f:spec": {"f:template": {"f:spec": {"f:containers": {'k:{"name":"side"}': {".": {}}}}}}
}


def entry(fields: Manifest, manager: str = "kubectl-patch", **more: Any) -> Manifest:
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "apps/v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
        **more,
    }


def body(*entries: Manifest, kind: str = "Deployment") -> Manifest:
    mine = entry(OURS, FIELD_MANAGER, operation="Apply")
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"managedFields": [mine, *entries]}}


@pytest.mark.parametrize("fields", [PAUSED, SIDECAR, RESTARTED | PAUSED, MISLED])
def test_content_that_others_wrote_is_found(fields: Manifest) -> None:
    assert written_by_others(body(entry(fields)))


@pytest.mark.parametrize("fields", [{}, LABELLED, RESTARTED])
def test_labels_and_annotations_of_others_stay(fields: Manifest) -> None:
    assert not written_by_others(body(entry(fields)))


def test_a_template_that_others_wrote_is_not_taken_for_one_that_an_operator_made() -> None:
    assert TEMPLATE_ANNOTATION in outdated_marks(body(entry(SIDECAR)))
    assert outdated_marks(body(entry(PAUSED))) == (HASH_ANNOTATION,)


def test_what_goes_through_a_subresource_is_not_the_contents_business() -> None:
    status = entry({"f:status": {"f:replicas": {}}}, subresource="status")
    scaled = entry({"f:spec": {"f:replicas": {}}}, subresource="scale")
    assert not written_by_others(body(status, scaled))


def test_replicas_of_a_role_are_there_to_be_written_by_others() -> None:
    assert not written_by_others(body(entry({"f:spec": {"f:replicas": {}}}), kind="OasisRole"))


def test_an_object_without_managers_was_written_by_nobody_else() -> None:
    assert not written_by_others({"apiVersion": "v1", "kind": "Service", "metadata": {}})


def test_only_a_template_that_others_wrote_is_not_what_an_operator_made() -> None:
    assert template_written_by_others(body(entry(SIDECAR)))
    assert not template_written_by_others(body(entry(PAUSED)))
    assert not template_written_by_others(body(entry(RESTARTED)))


def test_content_changes_hands_and_labels_do_not() -> None:
    status = entry({"f:status": {}}, "kube-controller-manager", subresource="status")
    (mine, theirs, kept) = taken_over(body(entry(SIDECAR | LABELLED), status))
    assert mine["manager"] == FIELD_MANAGER
    assert mine["fieldsV1"]["f:spec"] == {
        "f:replicas": {},
        "f:template": {
            "f:spec": {"f:hostname": {}, "f:containers": {'k:{"name":"side"}': {".": {}}}}
        },
    }
    assert theirs["fieldsV1"] == LABELLED
    assert kept == status


def test_a_restart_that_came_with_content_stays_theirs() -> None:
    template = RESTARTED["f:spec"]["f:template"] | SIDECAR["f:spec"]["f:template"]
    (_, theirs) = taken_over(body(entry({"f:spec": {"f:template": template}})))
    assert theirs["fieldsV1"] == RESTARTED


def test_an_operator_whose_own_entry_was_removed_gets_one() -> None:
    found = body(entry(PAUSED))
    del found["metadata"]["managedFields"][0]
    (mine,) = taken_over(found)
    assert (mine["manager"], mine["operation"]) == (FIELD_MANAGER, "Apply")
    assert mine["fieldsV1"] == PAUSED


NAMES = st.sampled_from(
    ["f:spec", "f:template", "f:metadata", "f:labels", "f:data", "f:a", "f:oasiskv.io/b", "."]
)
TREES: st.SearchStrategy[Manifest] = st.recursive(
    st.just({}), lambda inner: st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
)


def leaves(fields: Manifest, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    if not fields:
        return {path} if path else set()
    return {leaf for key, inner in fields.items() for leaf in leaves(inner, (*path, key))}


@given(st.lists(TREES, max_size=3))
def test_once_taken_nothing_is_left_to_take_and_no_field_lost_its_owner(
    trees: list[Manifest],
) -> None:
    found = body(*[entry(tree, f"m-{number}") for number, tree in enumerate(trees)])
    managed = taken_over(found)
    after = {**found, "metadata": {"managedFields": managed}}
    assert not written_by_others(after)
    assert taken_over(after) == managed

    def owned(entries: list[Manifest]) -> set[tuple[str, ...]]:
        return {leaf for item in entries for leaf in leaves(item["fieldsV1"])}

    # A node that is a leaf for one and the way to another for the other is the way to it.
    before = owned(found["metadata"]["managedFields"])
    assert {
        leaf
        for leaf in before - owned(managed)
        if not any(other[: len(leaf)] == leaf for other in owned(managed))
    } == set()


def test_an_object_that_others_wrote_is_applied_and_not_only_one_that_differs() -> None:
    objects = built(deployment())
    live = stored(objects)
    assert plan(objects.objects, objects.rollout, live).empty
    key = next(key for key in live if key.kind == "Deployment")
    live[key]["metadata"]["managedFields"] = [entry(PAUSED)]
    todo = plan(objects.objects, objects.rollout, live)
    assert [ObjectKey.of(item) for item in todo.apply] == [key]
    assert HASH_ANNOTATION in todo.apply[0]["metadata"]["annotations"]
