from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasis_operator.desired.override import OverrideError, merged, overridden

JSON = st.recursive(
    st.integers() | st.text(max_size=4),
    lambda inner: st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_an_empty_override_changes_nothing(base: Any) -> None:
    assert merged({"a": base}, {}) == {"a": base}


@given(st.dictionaries(st.text(max_size=4), JSON, max_size=4))
def test_merging_twice_is_merging_once(override: dict[str, Any]) -> None:
    base = {"a": {"b": 1}, "c": [1]}
    assert merged(merged(base, override), override) == merged(base, override)


def test_containers_merge_by_name_and_keep_their_order() -> None:
    base = {"containers": [{"name": "engine", "image": "a", "env": [{"name": "X", "value": "1"}]}]}
    override = {
        "containers": [
            {"name": "engine", "env": [{"name": "Y", "value": "2"}]},
            {"name": "sidecar", "image": "b"},
        ]
    }
    assert merged(base, override) == {
        "containers": [
            {
                "name": "engine",
                "image": "a",
                "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}],
            },
            {"name": "sidecar", "image": "b"},
        ]
    }


def test_a_list_without_a_key_is_replaced() -> None:
    assert merged({"tolerations": [{"key": "a"}]}, {"tolerations": []}) == {"tolerations": []}


@pytest.mark.parametrize("key", ["a", "b"])
def test_null_deletes(key: str) -> None:
    assert merged({"a": 1}, {key: None}) == ({"a": 1} if key == "b" else {})


POD = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {
        "containers": [{"name": "engine", "env": [{"name": "X", "value": "1"}]}],
        "volumes": [{"name": "config"}],
    },
}


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ({"metadata": None}, "metadata"),
        ({"metadata": {"labels": ["a"]}}, "metadata.labels"),
        ({"spec": "none"}, "spec"),
        ({"spec": {"containers": None}}, "spec.containers"),
        ({"spec": {"containers": "engine"}}, "spec.containers"),
        ({"spec": {"containers": [{"image": "x"}]}}, "every item of containers needs a name"),
        ({"spec": {"containers": [{"name": {"a": 1}}]}}, "every item of containers needs a name"),
        ({"spec": {"containers": ["engine"]}}, "every item of containers needs a name"),
        (
            {"spec": {"containers": [{"name": "engine", "env": [1]}]}},
            "every item of env needs a name",
        ),
        (
            {"spec": {"containers": [{"name": "engine", "resources": {"limits": 1}}]}},
            "spec.containers.0.resources.limits",
        ),
        ({"spec": {"initContainers": [{}]}}, "spec.initContainers.0.name"),
        ({"spec": {"volumes": None}}, "spec.volumes"),
    ],
)
def test_what_makes_no_pod_is_refused_with_its_path(override: dict[str, Any], told: str) -> None:
    with pytest.raises(OverrideError, match=re.escape(told)):
        overridden(POD, override)


@given(st.dictionaries(st.sampled_from(["metadata", "spec"]), JSON))
def test_any_override_makes_a_pod_or_is_refused(override: dict[str, Any]) -> None:
    try:
        found = overridden(POD, override)
    except OverrideError:
        return
    assert found["spec"]["containers"][0]["name"] == "engine"
