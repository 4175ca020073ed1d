"""Whether a device fulfils a CEL expression, for the expressions that drivers commonly ship.

The scheduler evaluates all of CEL; here only conjunctions of comparisons of the driver and of
attributes with literals are understood. Anything else is *maybe*, so that a judgement made with
it never rules out what the scheduler might find.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from oasis_operator.topology.inventory import Device, Value

_DRIVER = re.compile(r"""device\.driver\s*==\s*(?P<literal>"[^"\\]*"|'[^'\\]*')""")
_ATTRIBUTE = re.compile(
    r"""device\.attributes\[(?P<domain>"[^"\\]*"|'[^'\\]*')\]\.(?P<name>[A-Za-z_]\w*)"""
    r"""(?:\s*==\s*(?P<literal>"[^"\\]*"|'[^'\\]*'|-?\d+|true|false))?"""
)


def may_match(device: Device, expressions: Iterable[str]) -> bool:
    """False only where one of the expressions certainly does not hold."""
    return all(_holds(device, expression) is not False for expression in expressions)


def _holds(device: Device, expression: str) -> bool | None:
    """None: it cannot be told here."""
    parts = expression.split("&&")
    # Only at the outermost level does each part stand for itself.
    if "||" in expression or "?" in expression or not all(map(_closed, parts)):
        return None
    results = [_part_holds(device, part.strip()) for part in parts]
    if False in results:
        return False
    return None if None in results else True


def _closed(part: str) -> bool:
    """No bracket or string of the part goes on in another part."""
    brackets = all(part.count(left) == part.count(right) for left, right in ("()", "[]", "{}"))
    return brackets and not part.count('"') % 2 and not part.count("'") % 2


def _part_holds(device: Device, part: str) -> bool | None:
    driver = _DRIVER.fullmatch(part)
    if driver:
        return device.driver == driver["literal"][1:-1]
    found = _ATTRIBUTE.fullmatch(part)
    if not found:
        return None
    # A missing key is an error in CEL, and then the device is not chosen either.
    value = device.attributes.get(f"{found['domain'][1:-1]}/{found['name']}")
    wanted = True if found["literal"] is None else _literal(found["literal"])
    return type(value) is type(wanted) and value == wanted


def _literal(text: str) -> Value:
    if text in ("true", "false"):
        return text == "true"
    return text[1:-1] if text[0] in "\"'" else int(text)
