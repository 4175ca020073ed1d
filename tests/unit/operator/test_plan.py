from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasis_operator.desired.build import Desired, desired
from oasis_operator.desired.limits import UNBOUNDED
from oasis_operator.desired.metadata import (
    HASH_ANNOTATION,
    REVISION_LABEL,
    TEMPLATE_ANNOTATION,
    Component,
    Manifest,
)
from oasis_operator.desired.placement import Placement
from oasis_operator.desired.revision_state import goal_of
from oasis_operator.desired.rollout import Rollout, decide_rollout
from oasis_operator.reconcile.observed import ObjectKey, Observed
from oasis_operator.reconcile.plan import Plan, covers, plan
from tests.unit.operator.make import (
    IMAGES,
    alone,
    built,
    by_kubelet,
    deployment,
    progressed,
    router_name,
    stored,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)
SPECS = st.fixed_dictionaries(
    {
        "prefill": st.sampled_from([None, {}, {"replicas": 2}]),
        "decode": st.sampled_from([{}, {"resources": {"limits": {"cpu": "1000m"}}}]),
        "kv": st.sampled_from([{}, {"budgetTokens": 512}]),
        "router": st.sampled_from([{}, {"replicas": 2}]),
    }
)
Live = dict[ObjectKey, Manifest]
ROLES = (Component.PREFILL, Component.DECODE)


def planned(objects: Desired, live: Live) -> Plan:
    return plan(objects.objects, objects.rollout, live)


def carried_out(todo: Plan, live: Live) -> Live:
    out = {key: body for key, body in live.items() if key not in todo.delete}
    for item in todo.apply:
        key = ObjectKey.of(item)
        out[key] = {**out.get(key, {}), **copy.deepcopy(item)}
    return out


@given(SPECS)
def test_there_is_nothing_to_do_twice(spec: dict[str, Any]) -> None:
    objects = built(deployment(**spec))
    assert planned(objects, stored(objects)).empty


@given(SPECS, SPECS)
def test_a_plan_carried_out_leaves_nothing_to_do(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    live = stored(built(deployment(**before)))
    objects = built(deployment(**after))
    live = carried_out(planned(objects, live), live)
    assert planned(objects, live).empty
    assert set(live) == {ObjectKey.of(item) for item in objects.objects}


@given(SPECS)
def test_another_operator_of_the_same_version_changes_nothing(spec: dict[str, Any]) -> None:
    first, second = built(deployment(**spec)), built(deployment(**spec))
    assert first == second
    assert planned(second, stored(first)).empty


def test_an_empty_cluster_gets_workloads_last() -> None:
    kinds = [item["kind"] for item in planned(built(deployment()), {}).apply]
    assert kinds[-5:] == ["ConfigMap", "Deployment", "ConfigMap", "Deployment", "Deployment"]


@pytest.mark.parametrize("value", [0, 7])
def test_drift_of_a_field_is_repaired(value: int) -> None:
    objects = built(deployment())
    live = stored(objects)
    key = next(key for key in live if key.name.endswith("-decode") and key.kind == "Deployment")
    live[key]["spec"]["replicas"] = value
    assert [ObjectKey.of(item) for item in planned(objects, live).apply] == [key]


def test_fields_of_others_are_left_alone() -> None:
    objects = built(deployment())
    live = stored(objects)
    for body in live.values():
        body["metadata"]["labels"]["team"] = "a"
        body["metadata"]["annotations"]["seen"] = "yes"
    assert planned(objects, live).empty


def test_what_is_no_longer_wanted_goes_workloads_first() -> None:
    live = stored(built(deployment()))
    todo = planned(built(deployment(prefill=None)), live)
    kinds = [key.kind for key in todo.delete]
    assert kinds[:2] == ["Deployment", "Deployment"]
    assert ObjectKey("Service", "chat-prefill") in todo.delete


def test_while_the_old_revision_serves_nothing_that_it_needs_goes() -> None:
    old = built(deployment())
    live = {key: _established(body) for key, body in stored(old).items()}
    observed = Observed(live)
    changed = deployment(prefill=None)
    new = desired(
        changed,
        IMAGES,
        lambda target: decide_rollout(
            goal_of(changed, target), observed.selected(), observed.revisions(), UNBOUNDED
        ),
        by_kubelet(changed),
    )
    todo = planned(new, live)
    assert new.rollout.serving == old.rollout.target
    assert todo.delete == ()
    written = {ObjectKey.of(item).name for item in todo.apply}
    assert written == {f"chat-{new.rollout.target}-decode", f"chat-{new.rollout.target}-router"}


def test_a_revision_that_nobody_needs_goes() -> None:
    old = built(deployment())
    live = stored(old)
    new = built(deployment(kv={"budgetTokens": 512}))
    gone = {key for key, body in live.items() if body["metadata"]["labels"].get(REVISION_LABEL)}
    assert set(planned(new, live).delete) == gone


def test_the_endpoint_switches_before_the_old_routers_go() -> None:
    live = stored(built(deployment()))
    new = built(deployment(kv={"budgetTokens": 512}))
    todo = planned(new, live)
    assert ObjectKey("Service", "chat-router") in map(ObjectKey.of, todo.apply)
    assert ObjectKey("Deployment", router_name(deployment())) in todo.delete


def during(update: Rollout) -> Plan:
    """The plan for a cluster with the revision that ``update`` says serves."""
    live = stored(built(deployment()))
    od = deployment(kv={"budgetTokens": 512})
    return planned(desired(od, IMAGES, lambda _: update, by_kubelet(od)), live)


def test_engines_stay_longer_than_their_routers() -> None:
    old = built(deployment()).rollout.target
    drained = during(Rollout("new", "new", None, kept=frozenset({old})))
    assert {key.name for key in drained.delete} == {f"chat-{old}-router"}


def test_pods_that_are_given_up_are_scaled_and_not_applied() -> None:
    old = built(deployment()).rollout.target
    kept = frozenset({old})
    resized = {Component.DECODE: 0, Component.PREFILL: 1}
    todo = during(Rollout("new", old, None, resized=resized, kept=kept, routed=kept))
    assert todo.scale == {ObjectKey("Deployment", f"chat-{old}-decode"): 0}
    assert todo.delete == ()


def by_another_version(live: Live) -> Live:
    """The same cluster, had an operator made it that writes templates and configurations
    otherwise."""
    out = copy.deepcopy(live)
    for body in out.values():
        if body["kind"] == "Deployment":
            body["spec"]["template"]["spec"]["hostname"] = "was-set-by-another-version"
            body["metadata"]["annotations"][TEMPLATE_ANNOTATION] = "another"
        if body["kind"] == "ConfigMap":
            body["data"] = {"engine.yaml": "another: version\n"}
            body["metadata"]["annotations"][HASH_ANNOTATION] = "another"
        if body["kind"] == "Service":
            body["metadata"]["annotations"][HASH_ANNOTATION] = "another"
    return out


@given(SPECS)
def test_an_operator_of_another_version_starts_no_pod_anew(spec: dict[str, Any]) -> None:
    od = deployment(**spec)
    live = by_another_version(stored(built(od)))
    after = carried_out(planned(built(od), live), live)
    assert set(after) == set(live)
    for key, body in live.items():
        if body["kind"] == "Deployment":
            assert after[key]["spec"]["template"] == body["spec"]["template"]
        if body["kind"] == "ConfigMap":
            assert after[key]["data"] == body["data"]
    assert planned(built(od), after).empty


def test_and_still_scales_what_the_other_version_made() -> None:
    live = by_another_version(stored(built(deployment())))
    more = built(deployment(decode={"replicas": 3}))
    name = ObjectKey("Deployment", f"chat-{more.rollout.target}-decode")
    applied = {ObjectKey.of(item): item for item in planned(more, live).apply}
    assert applied[name]["spec"]["replicas"] == 3
    assert applied[name]["spec"]["template"]["spec"]["hostname"] == "was-set-by-another-version"


def test_a_changed_router_is_made_by_this_version() -> None:
    live = by_another_version(stored(built(deployment())))
    od = deployment(router={"image": "router:2"})
    applied = {ObjectKey.of(item): item for item in planned(built(od), live).apply}
    router = applied[ObjectKey("Deployment", router_name(od))]
    assert "hostname" not in router["spec"]["template"]["spec"]


def test_a_template_of_this_version_that_somebody_changed_is_repaired() -> None:
    objects = built(deployment())
    live = stored(objects)
    key = next(key for key in live if key.name.endswith("-decode") and key.kind == "Deployment")
    live[key]["spec"]["template"]["spec"]["containers"][0]["image"] = "theirs:1"
    assert [ObjectKey.of(item) for item in planned(objects, live).apply] == [key]


def test_claims_of_pods_that_another_version_made_stay() -> None:
    od = deployment(decode={"devices": {"gpu": {}}})
    placed = dict.fromkeys(ROLES, Placement("dra", ""))
    objects = desired(od, IMAGES, lambda revision: alone(od, revision), placed)
    live = by_another_version(stored(objects))
    theirs = ObjectKey("ResourceClaimTemplate", "theirs")
    (mine,) = [key for key in live if key.kind == "ResourceClaimTemplate"]
    live[theirs] = copy.deepcopy(live.pop(mine))
    live[theirs]["metadata"]["name"] = theirs.name
    for body in live.values():
        if body["kind"] == "Deployment":
            for claim in body["spec"]["template"]["spec"].get("resourceClaims", []):
                claim["resourceClaimTemplateName"] = theirs.name
    assert planned(objects, live).delete == ()


def _established(body: Manifest) -> Manifest:
    if body["kind"] != "Deployment":
        return body
    return progressed(body, ready=True, established=True)


@given(JSON)
def test_everything_covers_itself(value: Any) -> None:
    assert covers(value, copy.deepcopy(value))


@given(st.dictionaries(st.text(max_size=3), JSON, min_size=1, max_size=4), st.data())
def test_a_missing_field_is_not_covered_unless_it_says_nothing(
    value: dict[str, Any], data: st.DataObject
) -> None:
    key = data.draw(st.sampled_from(sorted(value)))
    rest = {k: v for k, v in value.items() if k != key}
    assert covers(value, rest) == (value[key] in (None, {}, []))


@pytest.mark.parametrize(
    ("wanted", "live", "same"),
    [
        ({"cpu": "1000m"}, {"cpu": "1"}, True),
        ({"cpu": "1000m"}, {"cpu": "2"}, False),
        ([1, 2], [1], False),
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": {}}, {}, True),
    ],
)
def test_covering(wanted: Any, live: Any, same: bool) -> None:
    assert covers(wanted, live) is same
