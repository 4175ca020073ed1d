"""Room on the disk: asked for before the first long step, not found out in the last."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from testbed import cache
from testbed.problem import Problem

GIGABYTE = 10**9


@dataclass(frozen=True)
class Need:
    """Something that takes room if it is not there yet."""

    what: str
    gigabytes: float
    made: bool


def require(needs: Iterable[Need], folder: Path | None = None) -> None:
    """Raise Problem unless the disk of the cache has room for what is not made yet.

    ``folder``: another one than the cache's.
    """
    folder = cache.root() if folder is None else folder
    absent = [need for need in needs if not need.made]
    wanted = sum(need.gigabytes for need in absent)
    free = free_gigabytes(folder)
    if free < wanted:
        raise Problem(
            f"{', '.join(need.what for need in absent)} will take {wanted:.1f} GB, and the disk of "
            f"{folder} has {free:.1f} GB free; make room, or set OASISKV_CACHE to a folder on a "
            "larger one"
        )


def free_gigabytes(folder: Path) -> float:
    """What may be written where ``folder`` is or will be."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return shutil.disk_usage(there).free / GIGABYTE
