"""Processes are recognised by more than their id, and end when told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed import processes, wait
from testbed.problem import Problem
from testbed.processes import Process


def test_a_process_is_found_again_and_stopped(tmp_path: Path) -> None:
    started = processes.spawn("sleeper", ["/bin/sleep", "60"], tmp_path / "log")
    assert started.running()
    processes.stop(started)
    assert not started.running()


def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    script = "trap '' TERM; echo up; while :; do sleep 0.1; done"
    log = tmp_path / "log"
    started = processes.spawn("deaf", ["/bin/sh", "-c", script], log)
    wait.until(lambda: "up" in log.read_text(), "the trap", timeout=10)
    processes.stop(started, grace=0.2)
    assert not started.running()


def test_another_process_with_the_same_id_is_not_taken_for_it() -> None:
    mine = processes.this_process("test")
    assert mine.running()
    assert not Process("test", mine.pid, mine.started - 1).running()


def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="ghost cannot start: there is no program"):
        processes.spawn("ghost", [tmp_path / "nothing"], tmp_path / "log")


def test_the_end_of_a_program_shows_the_end_of_its_log(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    script = f"echo the reason; read line <{tmp_path / 'go'}; exit 1"
    started = processes.spawn("short", ["/bin/sh", "-c", script], tmp_path / "short.log")
    (tmp_path / "go").write_text("now\n")
    with pytest.raises(Problem, match="the reason") as caught:
        wait.until(
            lambda: False, "nothing", 10, lambda: processes.require_running([started], tmp_path)
        )
    assert "short ended" in str(caught.value)


def test_a_lock_of_the_caller_is_not_passed_on(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    os.set_inheritable(descriptor, True)
    started = processes.spawn("heir", ["/bin/sleep", "60"], tmp_path / "log")
    try:
        held = [link.readlink() for link in Path(f"/proc/{started.pid}/fd").iterdir()]
        assert tmp_path / "lock" not in held
    finally:
        processes.stop(started)
        os.close(descriptor)


def test_waiting_ends_with_a_sentence() -> None:
    with pytest.raises(Problem, match="the moon did not happen within 0 s"):
        wait.until(lambda: False, "the moon", timeout=0.0)
