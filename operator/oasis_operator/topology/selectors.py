"""Whether a device fulfils a CEL expression, for the expressions that drivers commonly ship.

The scheduler evaluates all of CEL; here only conjunctions of comparisons of the driver and of
attributes with literals are understood. Anything else is *maybe*, so that a judgement made with
it never rules out what the scheduler might find.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from oasis_operator.topology.inventory import Device, Value

_DRIVER = re.compile(r"""device\.driver\s*==\s*(?P<literal>"[^"\\]*"|'[^'\\]*')""")
_ATTRIBUTE = re.compile(
    r"""device\.attributes\[(?P<domain>"[^"\\]*"|'[^'\\]*')\]\.(?P<name>[A-Za-z_]\w*)"""
    r"""(?:\s*==\s*(?P<literal>"[^"\\]*"|'[^'\\]*'|-?\d+|true|false))?"""
)


Predicate = Callable[[Device], bool]


def may_match(device: Device, expressions: Iterable[str]) -> bool:
    """False only where one of the expressions certainly does not hold."""
    return all(predicate(device) for text in expressions for predicate in _understood(text))


@lru_cache(maxsize=256)
def _understood(expression: str) -> tuple[Predicate, ...]:
    """The parts of the expression that can be told here; a cluster has many devices and few
    expressions."""
    parts = expression.split("&&")
    # Only at the outermost level does each part stand for itself.
    if "||" in expression or "?" in expression or not all(map(_closed, parts)):
        return ()
    return tuple(found for part in parts if (found := _predicate(part.strip())) is not None)


def _closed(part: str) -> bool:
    """No bracket or string of the part goes on in another part."""
    brackets = all(part.count(left) == part.count(right) for left, right in ("()", "[]", "{}"))
    return brackets and not part.count('"') % 2 and not part.count("'") % 2


def _predicate(part: str) -> Predicate | None:
    driver = _DRIVER.fullmatch(part)
    if driver:
        name = driver["literal"][1:-1]
        return lambda device: device.driver == name
    found = _ATTRIBUTE.fullmatch(part)
    if not found:
        return None
    attribute = f"{found['domain'][1:-1]}/{found['name']}"
    wanted = True if found["literal"] is None else _literal(found["literal"])

    def holds(device: Device) -> bool:
        # A missing key is an error in CEL, and then the device is not chosen either.
        value = device.attributes.get(attribute)
        return type(value) is type(wanted) and value == wanted

    return holds


def _literal(text: str) -> Value:
    if text in ("true", "false"):
        return text == "true"
    return text[1:-1] if text[0] in "\"'" else int(text)
