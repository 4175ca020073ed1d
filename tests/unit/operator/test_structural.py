from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from oasis_operator.api.structural import NotStructuralError, structural


class Inner(BaseModel):
    size: int | str = "1Gi"


class Outer(BaseModel):
    inner: Inner = Inner()
    maybe: Inner | None = None
    labels: dict[str, str] | None = None
    anything: dict[str, Any] | None = None


class Recursive(BaseModel):
    child: Recursive | None = None


class Union(BaseModel):
    value: int | list[str]


class Pair(BaseModel):
    value: tuple[int, int]


def test_models_are_inlined_with_their_defaults() -> None:
    inner = structural(Outer.model_json_schema())["properties"]["inner"]
    assert inner["default"] == {"size": "1Gi"}
    assert inner["properties"]["size"]["default"] == "1Gi"


def test_int_or_string_is_said_as_the_api_server_wants_it() -> None:
    size = structural(Inner.model_json_schema())["properties"]["size"]
    assert size["x-kubernetes-int-or-string"] is True
    assert size["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert "type" not in size


def test_an_optional_field_is_absent_and_not_null() -> None:
    schema = structural(Outer.model_json_schema())
    assert "maybe" not in schema.get("required", [])
    assert "default" not in schema["properties"]["maybe"]
    assert "nullable" not in str(schema)


def test_free_form_objects_keep_unknown_fields_and_maps_do_not() -> None:
    fields = structural(Outer.model_json_schema())["properties"]
    assert fields["anything"]["x-kubernetes-preserve-unknown-fields"] is True
    assert fields["labels"]["additionalProperties"] == {"type": "string"}


@pytest.mark.parametrize("model", [Recursive, Union, Pair])
def test_what_no_structural_schema_can_say_is_refused(model: type[BaseModel]) -> None:
    with pytest.raises(NotStructuralError):
        structural(model.model_json_schema())
