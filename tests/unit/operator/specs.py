"""Specs made from the schema of the CRD, and mutations of them: some valid, most not."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from oasis_operator.api.crd import custom_resource_definition

Schema = dict[str, Any]
Spec = dict[str, Any]
Path = tuple[str | int, ...]

SCHEMA: Schema = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
SPEC: Schema = SCHEMA["properties"]["spec"]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**31), 2**31) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
QUANTITIES = st.sampled_from(
    [0, 1, 2, 64, "1", "500m", "2000m", "1Mi", "512Mi", "1Gi", "4Gi", "16Gi", "1Ti", "1e3", "0.5",
     "1Ki", "-1", "1e40", "1Ei", "x", ""]
)  # fmt: skip
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "name": st.sampled_from(["engine", "sidecar", "UPPER", ""]),
            "image": st.sampled_from(["x:1", "", 3]),
            "resources": st.sampled_from([{}, {"limits": {"cpu": 2}}, {"limits": "all"}]),
            "env": st.sampled_from([[], [{"name": "X", "value": "1"}], [{"value": "1"}], ["X"]]),
        },
    ),
    max_size=2,
)
POD_TEMPLATES: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.sampled_from(
            [None, {}, {"labels": {"a": "b"}}, {"labels": {"a": 1}}, {"labels": []}]
        ),
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "containers": st.none() | CONTAINERS,
                "initContainers": CONTAINERS,
                "volumes": st.sampled_from([None, [], [{"name": "tmp", "emptyDir": None}]]),
                "priorityClassName": st.text(max_size=4),
            },
        ),
    },
) | st.dictionaries(st.sampled_from(["metadata", "spec", "x"]), JSON, max_size=2)
"""What can be in the only part of a spec that has no schema."""


def values(schema: Schema) -> st.SearchStrategy[Any]:
    """Values of a structural schema, within its bounds; rules may still be against them."""
    if schema.get("x-kubernetes-int-or-string"):
        return QUANTITIES
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return POD_TEMPLATES
    match schema["type"]:
        case "object" if "properties" in schema:
            return _objects(schema)
        case "object":
            keys = st.from_regex(r"\A[a-z][a-z0-9.-]{0,8}(/[a-z]{1,4})?\Z") | st.sampled_from(
                ["cpu", "memory", "nvidia.com/gpu"]
            )
            return st.dictionaries(keys, values(schema["additionalProperties"]), max_size=3)
        case "array":
            least = schema.get("minItems", 0)
            return st.lists(values(schema["items"]), min_size=least, max_size=least + 2)
        case "string":
            return _strings(schema)
        case "integer":
            low = schema.get("minimum", -(2**31))
            high = schema.get("maximum", 2**31)
            return st.integers(low, min(high, low + 8)) | st.integers(low, high)
        case "boolean":
            return st.booleans()
    raise AssertionError(f"no values for {schema}")


def _strings(schema: Schema) -> st.SearchStrategy[str]:
    least, most = schema.get("minLength", 0), schema.get("maxLength", 64)
    if "pattern" not in schema:
        return st.text(min_size=least, max_size=min(most, least + 12))
    # In the API server's expressions a word has no letters but those of ASCII.
    fitting = st.from_regex(re.compile(rf"\A(?:{schema['pattern']})\Z", re.ASCII))
    return fitting.filter(lambda text: least <= len(text) <= most)


def _objects(schema: Schema) -> st.SearchStrategy[Spec]:
    fields = {name: values(field) for name, field in schema["properties"].items()}
    required = set(schema.get("required", []))
    return st.fixed_dictionaries(
        {name: field for name, field in fields.items() if name in required},
        optional={name: field for name, field in fields.items() if name not in required},
    )


MODELS = st.sampled_from(
    [
        {"image": {"path": "/m"}},
        {"hostPath": {"path": "/srv/m"}},
        {"pvc": {"claimName": "weights"}},
        {"hub": {"name": "a/b"}},
        {"imageVolume": {"reference": "m:1"}},
    ]
)


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    """Anything that the schema has, with few replicas so that a cluster can hold many."""
    spec: Spec = draw(values(SPEC))
    if draw(st.booleans()):
        _obey(spec)
        spec["model"] = draw(MODELS)
    for role in ("prefill", "decode", "router"):
        if "replicas" in spec.get(role, {}):
            spec[role]["replicas"] = min(spec[role]["replicas"], 2)
    return spec


def _obey(spec: Spec) -> None:
    """Leaves out what rules about several fields refuse most often, so that many are taken."""
    spec.get("engine", {}).pop("nodes", None)
    spec.get("kv", {}).pop("prediction", None)
    for amount in ("maxSurge", "maxUnavailable"):
        spec.get("updates", {}).pop(amount, None)
    for role in ("prefill", "decode"):
        for field in ("devices", "numa"):
            spec.get(role, {}).pop(field, None)
    scaling = spec.get("autoscaling")
    if scaling is None:
        return
    if scaling.get("owner") == "external":
        spec["autoscaling"] = {"owner": "external"}
        return
    scaling.pop("prefill", None)
    for role in ("prefill", "decode") if "prefill" in spec else ("decode",):
        scaling[role] = {"minReplicas": 1, "maxReplicas": 2}
    scaling |= {"gpuBudget": 4, "ratio": {"max": "2:1"}}


WRONG = JSON | st.sampled_from(
    [-1, 2**63, 1e308, "", "x" * 5000, "\u0000", "\ud7ff\U0001f980", {"a": {"b": []}}, [[]], [None]]
)


@st.composite
def mutated(draw: st.DrawFn) -> Spec:
    """A spec with up to three places changed into something else, taken away, or added."""
    spec = copy.deepcopy(draw(specs()))
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(spec))
        if not places:
            break
        *parents, last = draw(st.sampled_from(places))
        inside: Any = spec
        for step in parents:
            inside = inside[step]
        change = draw(st.sampled_from(["replace", "delete", "add"]))
        if change == "delete":
            del inside[last]
        elif change == "replace" or not isinstance(inside, dict):
            inside[last] = copy.deepcopy(draw(WRONG))
        else:
            inside[draw(st.text(min_size=1, max_size=8))] = copy.deepcopy(draw(WRONG))
    return spec


def _places(value: Any, path: Path = ()) -> Iterator[Path]:
    """The way to every value inside."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, inner in items:
        yield (*path, key)
        yield from _places(inner, (*path, key))
