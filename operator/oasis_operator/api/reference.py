"""The reference page of the API, from the schema of the CRD."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from oasis_operator.api.crd import KIND, custom_resource_definition
from oasis_operator.api.definition import API_VERSION

Schema = dict[str, Any]


def reference_page() -> str:
    """Markdown: a table for each object in spec and status; of equal ones the first."""
    version = custom_resource_definition()["spec"]["versions"][0]
    fields = version["schema"]["openAPIV3Schema"]["properties"]
    lines = [
        "# API reference",
        "",
        "<!-- Written by `python -m oasis_operator.api.generate`; edit the models instead. -->",
        f"`{KIND}` of `{API_VERSION}`, as `kubectl explain odep --recursive` has it too.",
        "Names have at most 40 characters. What a deployment needs is in [deploy.md](deploy.md).",
    ]
    told: dict[str, str] = {}
    for name in ("spec", "status"):
        lines += _section(name, fields[name], told)
    return "\n".join(lines) + "\n"


def _section(path: str, schema: Schema, told: dict[str, str]) -> Iterator[str]:
    """One object and those inside it. ``told``: content of a table -> where it is."""
    yield from ("", f"## {path}", "", _cell(schema.get("description", "")), "")
    required = schema.get("required", [])
    yield from ("| field | type | default | meaning |", "| --- | --- | --- | --- |")
    inner = []
    for name, field in schema["properties"].items():
        meaning = _cell(field.get("description", ""))
        table = _table_of(field)
        if table is not None:
            here = f"{path}.{name}"
            where = told.setdefault(json.dumps(table["properties"], sort_keys=True), here)
            meaning += f" Fields: [{where}](#{where.replace('.', '').lower()})."
            inner += [(here, table)] if where == here else []
        default = "required" if name in required else _default(field)
        yield f"| `{name}` | {_type(field)} | {default} | {meaning} |"
    messages = [_cell(rule["message"]) for rule in schema.get("x-kubernetes-validations", [])]
    yield from ("", *(f"- {message}" for message in messages)) if messages else ()
    for where, table in inner:
        yield from _section(where, table, told)


def _table_of(field: Schema) -> Schema | None:
    """The object that a field is, or is a list of, if that has fields of its own."""
    schema = field.get("items", field)
    return schema if "properties" in schema else None


def _type(field: Schema) -> str:
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        return _int_or_string(field)
    if "items" in field:
        return f"list of {_type(field['items'])}{_bounds(field, 'Items')}"
    if isinstance(field.get("additionalProperties"), dict):
        return f"map to {_type(field['additionalProperties'])}{_bounds(field, 'Properties')}"
    if field["type"] == "string":
        return f"string{_bounds(field, 'Length')}"
    low, high = field.get("minimum"), field.get("maximum")
    if low is not None and high is not None:
        return f"{field['type']}, {low} to {high}"
    return f"{field['type']}, at least {low}" if low is not None else str(field["type"])


def _int_or_string(field: Schema) -> str:
    """The rule of a share has a percent sign in it, that of a quantity has not."""
    rules = (rule["rule"] for rule in field.get("x-kubernetes-validations", []))
    return "integer or percentage" if any("%" in rule for rule in rules) else "quantity"


def _bounds(field: Schema, of: str) -> str:
    most = field.get(f"max{of}")
    return f", at most {most}" if most is not None else ""


def _default(field: Schema) -> str:
    value = field.get("default")
    if value is None or isinstance(value, dict):
        return ""
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
