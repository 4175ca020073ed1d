"""Where the test bed keeps what is slow to make: outside the checkout, keyed by what it is made of."""

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
    """Folder of all cached things: ``$OASISKV_CACHE``, else ``oasiskv`` in the user's cache folder."""
    chosen = os.environ.get("OASISKV_CACHE")
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache").absolute() / "oasiskv"


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
    with open(path, "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another run that makes {path.stem}", file=sys.stderr, flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def entry(kind: str, name: str, key: str, make: Callable[[Path], None]) -> Path:
    """Folder ``kind/name-key``; calls ``make`` with an empty folder when it is not there yet.

    The folder gets its name only after ``make`` returned, so an interrupted run leaves nothing
    that looks finished. Entries of the same name with another key are removed then.
    """
    parent = root() / kind
    final = parent / f"{name}-{key}"
    if final.is_dir():
        return final
    with locked(parent / f".{name}.lock"):
        if final.is_dir():
            return final
        partial = parent / f".{name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        make(partial)
        partial.rename(final)
        for stale in others(parent, name, final):
            shutil.rmtree(stale, ignore_errors=True)
    return final


def others(parent: Path, name: str, current: Path) -> list[Path]:
    """Entries of ``name`` with another key than ``current``'s: what an older version left."""
    length = len(name) + 1 + 12
    return [
        found
        for found in sorted(parent.glob(f"{name}-*"))
        if found != current and found.is_dir() and len(found.name) == length
    ]
