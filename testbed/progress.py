"""Lines that tell how far a long step is, and commands that run under such a line."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from testbed import cache, room
from testbed.problem import Problem

REPEAT_SECONDS = 15.0
"""A step that is still running says so this often."""
CLEAN_SECONDS = 10.0
"""What an interrupted program gets to remove what it made."""
DISK_FULL = "No space left on device"
"""The words of ENOSPC in the log of any program."""
FULL_GIGABYTES = 0.05
"""No step can do its work in so little."""


def say(text: str) -> None:
    """Print one line now, also when the output is a pipe."""
    print(text, file=sys.stderr, flush=True)


def seconds(value: float) -> str:
    """``7.3 s`` under a minute, ``4 min 52 s`` above."""
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest:02d} s"


@contextmanager
def step(what: str) -> Iterator[None]:
    """Announce a step, repeat while it runs, and close with the time that it took."""
    started = time.monotonic()
    finished = threading.Event()

    def repeat() -> None:
        while not finished.wait(REPEAT_SECONDS):
            say(f"    {what}: {seconds(time.monotonic() - started)} so far")

    say(f"--> {what}")
    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    except BaseException as end:
        how = "failed" if isinstance(end, Exception) else "interrupted"
        say(f"    {what}: {how} after {seconds(time.monotonic() - started)}")
        raise
    finally:
        finished.set()
        thread.join()
    say(f"    {what}: done in {seconds(time.monotonic() - started)}")


def log_file(name: str) -> Path:
    """The log of a step, in the cache, emptied."""
    path = cache.root() / "log" / f"{name}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    return path


def tail(path: Path, lines: int = 20) -> str:
    """The last lines of a log, or a note that there is none."""
    if not path.exists():
        return "(no log was written)"
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def run(
    command: Sequence[str | Path],
    log: Path,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    remedy: str = "",
) -> None:
    """Run a command with its output in ``log``; it ends when this process does, even by a kill.

    Otherwise it would go on writing where the next run begins anew.

    Raises Problem with the end of the log, the log's path and ``remedy`` when it fails.
    """
    search = (os.environ if env is None else env).get("PATH")
    if shutil.which(str(command[0]), path=search) is None:
        raise Problem(
            f"the program {command[0]} is not installed; `python3 -m testbed packages` "
            "installs what the test bed needs"
        )
    # There is none but on Linux.
    leash = ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []
    with log.open("ab") as output:
        output.write(f"$ {' '.join(map(str, command))}\n".encode())
        output.flush()
        process = subprocess.Popen(
            [*leash, *map(str, command)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=env,
            # mmdebstrap that fails sends a signal to all of its process group.
            start_new_session=True,
        )
        try:
            code = process.wait()
        except BaseException:
            end(process)
            raise
    require_success(code, str(command[0]), log, remedy)


def end(process: subprocess.Popen[bytes]) -> None:
    """Have a program end with all of its process group, by itself if it does so soon."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(CLEAN_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def require_success(code: int, what: str, log: Path, remedy: str = "") -> None:
    """Raise Problem with the end of the log when an exit status is not 0."""
    if code != 0:
        hint = f" {remedy}" if remedy else ""
        # Not every program says so: mmdebstrap does not when it is quiet.
        if DISK_FULL in tail(log, 200) or room.free_gigabytes(log.parent) < FULL_GIGABYTES:
            hint = f" {disk_full()}"
        raise Problem(
            f"{tail(log)}\n{what} ended with status {code}; the whole log is {log}.{hint}"
        )


def disk_full() -> str:
    """What to do when there is no room left."""
    return (
        "The disk is full: make room, or set OASISKV_CACHE to a folder on a larger one (now "
        f"{cache.root()}), and run it again; what was finished is kept."
    )
