"""What is slow to make is kept: outside the checkout, keyed by what it is made of."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def root() -> Path:
    """Folder of the cache: ``$OASISKV_CACHE``, else ``oasiskv`` in the user's cache folder."""
    chosen = os.environ.get("OASISKV_CACHE")
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache").absolute() / "oasiskv"


def owns(name: object) -> bool:
    """Whether an OSError's file name is of the cache."""
    return isinstance(name, str) and Path(name).absolute().is_relative_to(root())


def fingerprint(*parts: str | Path) -> str:
    """Twelve hex digits over texts and the *contents* of files, in the order given.

    Lengths go in too, so that moving a character from one part to the next changes the result.
    """
    digest = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, Path) else part.encode()
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()[:12]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a cache entry, so that two runs do not make the same thing twice."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            what = path.stem.removeprefix(".")
            print(f"waiting for another run to be done with {what}", file=sys.stderr, flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


COMPLETE = ".complete"
"""Marks an entry whose making was not interrupted."""


def finished(kind: str, name: str, key: str) -> Path | None:
    """The folder of an entry that is there, None for one that would have to be made."""
    folder = root() / kind / f"{name}-{key}"
    return folder if (folder / COMPLETE).exists() else None


def entry(kind: str, name: str, key: str, make: Callable[[Path], None]) -> Path:
    """Folder ``kind/name-key``; calls ``make`` with it, empty, when it is not there yet.

    It is made in place, since a virtual environment cannot be moved, and marked when ``make`` has
    returned. Entries of the same name with another key are removed then.
    """
    parent = root() / kind
    folder = parent / f"{name}-{key}"
    if finished(kind, name, key) is not None:
        return folder
    with locked(parent / f".{name}.lock"):
        if finished(kind, name, key) is not None:
            return folder
        remove(folder)
        folder.mkdir(parents=True)
        make(folder)
        (folder / COMPLETE).touch()
        for stale in others(parent, name, folder):
            remove(stale)
    return folder


def remove(folder: Path) -> None:
    """Remove a folder with all that is in it, if it is there."""
    shutil.rmtree(folder, ignore_errors=True)


def others(parent: Path, name: str, current: Path) -> list[Path]:
    """Entries of ``name`` with another key than ``current``'s: what an older version left."""
    length = len(name) + 1 + 12
    return [
        found
        for found in sorted(parent.glob(f"{name}-*"))
        if found != current and found.is_dir() and len(found.name) == length
    ]
