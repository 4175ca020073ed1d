"""What the operator asked of the API server, from the server's audit log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

WRITING = frozenset({"create", "update", "patch", "delete"})


@dataclass(frozen=True)
class Request:
    """One request that was answered; ``done`` is in seconds since the epoch."""

    verb: str
    resource: str
    subresource: str
    name: str
    done: float

    @property
    def about_the_fleet(self) -> bool:
        """Neither the election, nor a watch, which lasts."""
        return self.resource != "leases" and self.verb != "watch"

    @property
    def writes(self) -> bool:
        return self.about_the_fleet and self.verb in WRITING


class AuditLog:
    """Reads on where it stopped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def since_last(self) -> list[Request]:
        """Requests that were answered since the last call."""
        with self._path.open("rb") as log:
            log.seek(self._offset)
            lines = log.readlines()
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()
        self._offset += sum(map(len, lines))
        return list(_parsed(lines))


def _parsed(lines: Iterable[bytes]) -> Iterator[Request]:
    for line in lines:
        entry = json.loads(line)
        about = entry.get("objectRef")
        if about is None or entry["stage"] != "ResponseComplete":
            continue
        yield Request(
            verb=entry["verb"],
            resource=about["resource"],
            subresource=about.get("subresource", ""),
            name=about.get("name", ""),
            done=datetime.fromisoformat(entry["stageTimestamp"]).timestamp(),
        )
