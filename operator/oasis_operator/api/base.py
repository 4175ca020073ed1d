"""Building blocks of the API models: the base class, validation rules, and common field types."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from oasis_operator.api.quantity import parse_quantity

RULES = "x-kubernetes-validations"


class ApiModel(BaseModel):
    """Camel-case on the wire. Unknown fields are dropped, as the API server prunes them."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        use_attribute_docstrings=True,
    )


def rule(expression: str, message: str, path: str | None = None) -> dict[str, str]:
    """One CEL rule. The message says what to do, not only what is wrong."""
    out = {"rule": expression, "message": message}
    return out | {"fieldPath": path} if path else out


def rules(*all_rules: dict[str, str]) -> dict[str, Any]:
    """JSON-schema extra that carries CEL rules into the CRD."""
    return {RULES: list(all_rules)}


def _is_quantity(value: int | str) -> int | str:
    parse_quantity(value)
    return value


# Bounds the cost of the rules. Not a bound of pydantic's: numbers have no length.
_SHORT: dict[str, Any] = {"maxLength": 32}

# ``string(self)`` makes one rule of both spellings, 1073741824 and "1Gi".
Quantity = Annotated[
    int | str,
    Field(
        json_schema_extra={
            **rules(rule("isQuantity(string(self))", "write a quantity such as 500m, 2 or 4Gi")),
            **_SHORT,
        },
    ),
    AfterValidator(_is_quantity),
]

TierSize = Annotated[
    int | str,
    Field(
        json_schema_extra={
            **rules(
                rule(
                    "isQuantity(string(self)) && "
                    "!quantity(string(self)).isLessThan(quantity('1Mi')) && "
                    "!quantity(string(self)).isGreaterThan(quantity('1Pi'))",
                    "write a size of at least 1Mi and at most 1Pi, such as 4Gi",
                )
            ),
            **_SHORT,
        },
    ),
    AfterValidator(_is_quantity),
]


def _is_amount(value: int | str) -> int | str:
    if isinstance(value, str) and not re.fullmatch(r"(0|[1-9][0-9]?|100)%", value):
        raise ValueError("write a number of pods, or a share such as 25%")
    if isinstance(value, int) and value < 0:
        raise ValueError("write 0 or more")
    return value


PodAmount = Annotated[
    int | str,
    Field(
        json_schema_extra={
            **rules(
                rule(
                    "string(self).matches('^([0-9]{1,4}|(0|[1-9][0-9]?|100)%)$')",
                    "write a number of pods such as 1, or a share of the replicas such as 25%",
                )
            ),
            **_SHORT,
        },
    ),
    AfterValidator(_is_amount),
]

LabelValue = Annotated[str, Field(max_length=63)]
ObjectName = Annotated[
    str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
]
Image = Annotated[str, Field(min_length=1, max_length=512)]
ResourceName = Annotated[
    str,
    Field(
        max_length=316, pattern=r"^[a-z0-9][-a-z0-9.]*/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
    ),
]
AbsolutePath = Annotated[
    str,
    Field(
        min_length=2,
        max_length=1024,
        pattern=r"^/[^:]+$",
        json_schema_extra=rules(
            rule("!self.contains('..')", "write an absolute path without '..'"),
        ),
    ),
]
PathInside = Annotated[
    str,
    Field(
        min_length=1,
        max_length=1024,
        pattern=r"^[^/:][^:]*$",
        json_schema_extra=rules(
            rule("!self.contains('..')", "write a path inside the volume without '..'")
        ),
    ),
]
