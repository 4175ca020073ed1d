"""What the API server did not keep of a manifest that it took.

A field behind a feature gate that is off is dropped without a word, and what is left may be valid
and mean something else: a volume without a source is an empty folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oasis_operator.reconcile.plan import covers

Path = tuple[str | int, ...]


def dropped(wanted: Any, live: Any) -> list[str]:
    """The fields of ``wanted`` that ``live`` has not, or has differently."""
    return [".".join(map(str, path)) for path in _dropped(wanted, live, ())]


def _dropped(wanted: Any, live: Any, path: Path) -> Iterator[Path]:
    if covers(wanted, live):
        return
    inside: list[tuple[str | int, Any, Any]] = []
    if isinstance(wanted, dict) and isinstance(live, dict):
        # Each as a part of the object, for there a field without content says nothing.
        inside = [
            (key, value, live.get(key))
            for key, value in wanted.items()
            if not covers({key: value}, live)
        ]
    elif isinstance(wanted, list) and isinstance(live, list) and len(wanted) == len(live):
        inside = [(index, *both) for index, both in enumerate(zip(wanted, live, strict=True))]
    found = [way for step, one, other in inside for way in _dropped(one, other, (*path, step))]
    yield from found or [path]
