"""Ctrl-C, SIGTERM and a full disk: one sentence, no program left running, no half entry."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from testbed import cli, demo, progress
from testbed.problem import Problem

END_SECONDS = 20

RUN = """
import sys
from pathlib import Path
from testbed import cache, cli, demo, progress
import signal
# SIGINT too: who starts the tests in the background has it ignored, and the tests inherit that.
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, signal.default_int_handler)

def make(folder):
    # A program that writes into the entry for as long as it lives, or until it is told to finish.
    script = "echo $$ > pid; until [ -e ../finish ]; do date >> half; sleep 0.05; done"
    progress.run(["sh", "-c", script], folder.parent / "log", cwd=folder)

demo.demo = lambda: cache.entry("kind", "name", "0" * 12, make)
sys.exit(cli.main(["demo"]))
"""


def start(cache: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(RUN)],
        env={**os.environ, "OASISKV_CACHE": str(cache)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def begin(cache: Path) -> tuple[subprocess.Popen[str], Path, int]:
    """A run that is in the middle of an entry: it, the entry's folder, the program's id."""
    run = start(cache)
    folder = cache / "kind" / f"name-{'0' * 12}"
    deadline = time.monotonic() + END_SECONDS
    while not (folder / "half").exists():
        assert time.monotonic() < deadline
        assert run.poll() is None
        time.sleep(0.01)
    return run, folder, int((folder / "pid").read_text())


def gone(pid: int) -> bool:
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True


def until_gone(pid: int) -> None:
    deadline = time.monotonic() + END_SECONDS
    while not gone(pid):
        assert time.monotonic() < deadline, "the program goes on"
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_a_run_that_is_stopped_says_so_in_a_sentence_and_stops_its_program(
    tmp_path: Path, number: signal.Signals
) -> None:
    run, folder, program = begin(tmp_path)
    # To this one process, as kill does; ctrl-C reaches the program too.
    run.send_signal(number)
    _, said = run.communicate(timeout=END_SECONDS)
    assert run.returncode == 128 + signal.SIGINT
    assert said == "testbed: interrupted; what was finished is kept; run it again to go on\n"
    assert gone(program)
    assert not (folder / ".complete").exists()


def test_a_run_that_is_killed_takes_its_program_with_it(tmp_path: Path) -> None:
    run, folder, program = begin(tmp_path)
    run.kill()
    run.communicate()
    until_gone(program)
    assert not (folder / ".complete").exists()


def test_a_second_run_waits_for_the_first_and_makes_nothing_twice(tmp_path: Path) -> None:
    first, folder, program = begin(tmp_path)
    second = start(tmp_path)
    assert second.stderr is not None
    assert second.stderr.readline() == "waiting for another run to be done with name\n"
    (folder.parent / "finish").touch()
    assert first.wait(END_SECONDS) == 0
    _, said = second.communicate(timeout=END_SECONDS)
    assert (second.returncode, said) == (0, "")
    assert int((folder / "pid").read_text()) == program
    assert first.stderr is not None
    first.stderr.close()


def test_a_program_that_the_disk_fails_gets_the_remedy_for_that(tmp_path: Path) -> None:
    full = ["sh", "-c", f"echo 'write: {os.strerror(errno.ENOSPC)}'; exit 1"]
    with pytest.raises(Problem, match="The disk is full: make room, or set OASISKV_CACHE"):
        progress.run(full, tmp_path / "log", remedy="Check that apt works here.")


def test_a_full_disk_under_our_own_writing_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full() -> None:
        with Path("/dev/full").open("w") as out:
            out.write("x")
            out.flush()

    monkeypatch.setattr(demo, "demo", full)
    assert cli.main(["demo"]) == 1
    assert capsys.readouterr().err.startswith("testbed: The disk is full: make room")


def test_a_program_that_is_not_installed_is_named(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="the program not-there is not installed"):
        progress.run(["not-there"], tmp_path / "log")


def test_a_program_that_signals_its_process_group_ends_nothing_of_ours(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="ended with status -15"):
        progress.run(["sh", "-c", "kill -TERM 0"], tmp_path / "log")


def test_a_program_that_says_nothing_of_a_full_disk_gets_that_remedy_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.room.free_gigabytes", lambda _: 0.001)
    with pytest.raises(Problem, match="The disk is full"):
        progress.run(["sh", "-c", "exit 25"], tmp_path / "log")
