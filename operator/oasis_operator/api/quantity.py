"""Kubernetes quantities: parsing to exact numbers.

The grammar is that of ``k8s.io/apimachinery/pkg/api/resource``: a decimal number followed by a
binary suffix (``Ki`` .. ``Ei``), a decimal suffix (``n u m k M G T P E``) or an exponent.
"""

from __future__ import annotations

import re
from decimal import Decimal

MAX_EXPONENT = 30
"""Far beyond what anything in a cluster is measured in, and still quick to calculate with."""

_GRAMMAR = re.compile(
    r"(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+))(?P<suffix>(?:[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?)"
)
_BINARY = {s: Decimal(1024) ** (i + 1) for i, s in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))}
_DECIMAL = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal("1e3"),
    "M": Decimal("1e6"),
    "G": Decimal("1e9"),
    "T": Decimal("1e12"),
    "P": Decimal("1e15"),
    "E": Decimal("1e18"),
}


def parse_quantity(value: int | str) -> Decimal:
    """The number that a quantity stands for.

    Raises:
        ValueError: the text is not a quantity.
    """
    match = _GRAMMAR.fullmatch(str(value))
    if match is None:
        raise ValueError(f"{value!r} is not a quantity; write a number such as 4Gi, 500m or 2")
    number, suffix = Decimal(match["number"]), match["suffix"]
    if suffix in _BINARY:
        return number * _BINARY[suffix]
    if suffix in _DECIMAL:
        return number * _DECIMAL[suffix]
    exponent = int(suffix[1:])
    if abs(exponent) > MAX_EXPONENT:
        raise ValueError(f"{value!r} has an exponent beyond {MAX_EXPONENT}")
    return number * Decimal(10) ** exponent


def quantity_bytes(value: int | str) -> int:
    """A quantity as whole bytes, rounded up as Kubernetes does."""
    exact = parse_quantity(value)
    return int(exact.to_integral_value(rounding="ROUND_CEILING"))


def same_quantity(one: object, other: object) -> bool:
    """Whether two values are the same quantity in different spellings (``1000m`` and ``1``)."""
    if not isinstance(one, int | str) or not isinstance(other, int | str):
        return False
    try:
        return parse_quantity(one) == parse_quantity(other)
    except ValueError:
        return False
