"""JSON schema as pydantic writes it -> structural schema as a CustomResourceDefinition wants it.

A structural schema has no ``$ref``, no unions but int-or-string, and no ``null`` (an optional
field is absent). What cannot be said in one raises, so that a model that needs it is noticed when
the CRD is generated and not when a cluster refuses it.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

_COPIED = (
    "type",
    "format",
    "description",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "required",
    "default",
)
PRESERVE_UNKNOWN = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
RULES = "x-kubernetes-validations"


class NotStructuralError(ValueError):
    """A model says something that no structural schema can say."""


def structural(schema: Schema) -> Schema:
    """Converts a whole pydantic JSON schema.

    Raises:
        NotStructuralError: on recursion, tuples, and unions other than int-or-string.
    """
    return _convert(schema, schema.get("$defs", {}), ())


def _convert(schema: Schema, models: dict[str, Schema], path: tuple[str, ...]) -> Schema:
    schema = dict(schema)
    if "$ref" in schema:
        name = schema.pop("$ref").rpartition("/")[2]
        if name in path:
            raise NotStructuralError(f"model {name} contains itself: flatten it")
        return _convert(_overlaid(models[name], schema), models, (*path, name))
    if "anyOf" in schema:
        return _union(schema, models, path)
    out = {key: schema[key] for key in _COPIED if key in schema}
    out |= {key: value for key, value in schema.items() if key.startswith("x-kubernetes-")}
    if "description" in out:
        out["description"] = _plain(out["description"])
    if "default" in out:
        out["default"] = _without_nulls(out["default"])
        # An optional field without a value is absent; {} is a default only where fields have some.
        if out["default"] is None:
            del out["default"]
    if "prefixItems" in schema:
        raise NotStructuralError(f"tuple in {'.'.join(path)}: use a list")
    if "properties" in schema:
        out["properties"] = {
            name: _convert(field, models, path) for name, field in schema["properties"].items()
        }
    elif schema.get("type") == "object":
        values = schema.get("additionalProperties", True)
        if isinstance(values, dict) and values:
            out["additionalProperties"] = _convert(values, models, path)
        else:
            out[PRESERVE_UNKNOWN] = True
    if "items" in schema:
        out["items"] = _convert(schema["items"], models, path)
    if "type" not in out and INT_OR_STRING not in out:
        raise NotStructuralError(f"a field of {'.'.join(path)} has no type: {sorted(schema)}")
    return out


def _union(schema: Schema, models: dict[str, Schema], path: tuple[str, ...]) -> Schema:
    options = [option for option in schema.pop("anyOf") if option.get("type") != "null"]
    if len(options) == 1:
        return _convert(_overlaid(options[0], schema), models, path)
    if {option.get("type") for option in options} != {"integer", "string"}:
        raise NotStructuralError(f"union in {'.'.join(path)}: only int | str can be said")
    out = _convert(schema | {"type": "string"}, models, path)
    del out["type"]
    return out | {INT_OR_STRING: True, "anyOf": [{"type": "integer"}, {"type": "string"}]}


def _overlaid(inner: Schema, outer: Schema) -> Schema:
    """The words of a field over those of its type; the rules of both hold."""
    both = [*inner.get(RULES, []), *outer.get(RULES, [])]
    merged = {**inner, **outer}
    return merged | {RULES: both} if both else merged


def _plain(docstring: str) -> str:
    """As ``kubectl explain`` shows it: paragraphs without line breaks, code in single marks."""
    paragraphs = docstring.replace("``", "`").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return value
