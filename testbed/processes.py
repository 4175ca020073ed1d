"""Long-running programs of a bed: started apart from the caller, found again later, stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed import progress, wait
from testbed.problem import Problem


@dataclass(frozen=True)
class Process:
    """A process that can be recognised after its parent is gone.

    ``started`` is the start time in clock ticks since boot (proc(5), field 22): a process id
    alone may by then belong to somebody else.
    """

    name: str
    pid: int
    started: int

    def running(self) -> bool:
        return start_time(self.pid) == self.started


def start_time(pid: int) -> int | None:
    """Start time of a live process, None for one that is gone or only waits to be reaped."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold spaces and parentheses; state is the field after it.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def this_process(name: str) -> Process:
    """The calling process, as others can find it."""
    started = start_time(os.getpid())
    if started is None:
        raise AssertionError("a running process has an entry in /proc")
    return Process(name, os.getpid(), started)


def spawn(
    name: str,
    command: Sequence[str | Path],
    log: Path,
    env: Mapping[str, str] | None = None,
) -> Process:
    """Start a program in its own session, with its output appended to ``log``.

    ``command[0]`` is a path. Raises Problem when it does not exist or ends at once.
    """
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        pid = os.posix_spawn(
            str(command[0]),
            [str(part) for part in command],
            os.environ if env is None else env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, out, 1),
                (os.POSIX_SPAWN_DUP2, out, 2),
                *((os.POSIX_SPAWN_CLOSE, number) for number in inherited()),
            ],
            setsid=True,
        )
    except FileNotFoundError as missing:
        raise Problem(f"{name} cannot start: there is no program {command[0]}") from missing
    finally:
        os.close(out)
    started = start_time(pid)
    if started is None:
        raise Problem(f"{name} ended at once:\n{progress.tail(log)}")
    return Process(name, pid, started)


def inherited() -> list[int]:
    """Descriptors above 2 that this process was given, such as a lock that its caller holds."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        number = int(entry.name)
        with contextlib.suppress(OSError):  # of the descriptor that the listing itself used
            if number > 2 and os.get_inheritable(number):
                found.append(number)
    return found


def require_running(processes: Sequence[Process], logs: Path) -> None:
    """Raise Problem with the end of its log when one of the processes has ended."""
    for process in processes:
        if not process.running():
            log = logs / f"{process.name}.log"
            raise Problem(f"{progress.tail(log)}\n{process.name} ended; the whole log is {log}")


def stop(process: Process, grace: float = 5.0) -> None:
    """SIGTERM, and SIGKILL after ``grace`` seconds; returns when the process is gone."""
    if not process.running():
        return
    _send(process, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while process.running() and time.monotonic() < deadline:
        _reap(process.pid)
        time.sleep(0.02)
    if process.running():
        _send(process, signal.SIGKILL)
        wait.until(lambda: _gone(process), f"the end of {process.name}", timeout=10)
    _reap(process.pid)


def _gone(process: Process) -> bool:
    _reap(process.pid)
    return not process.running()


def _send(process: Process, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, what)


def _reap(pid: int) -> None:
    """Collect the status of a child; a process that another one started is not ours to collect."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
