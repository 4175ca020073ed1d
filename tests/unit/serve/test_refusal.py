"""Refusals reach the terminal, the exit status and the pod's status."""

from __future__ import annotations

import io
from pathlib import Path

from oasis_runtime.serve.refusal import EX_CONFIG, RefusalError, report


def test_the_sentences_are_printed_one_a_line_and_the_status_is_ex_config(tmp_path: Path) -> None:
    stream = io.StringIO()
    status = report(RefusalError(["first", "second"]), stream, tmp_path / "absent")
    assert stream.getvalue() == "oasis_runtime: first\noasis_runtime: second\n"
    assert status == EX_CONFIG == 78


def test_outside_a_pod_no_termination_log_is_made(tmp_path: Path) -> None:
    report(RefusalError(["no"]), io.StringIO(), tmp_path / "termination-log")
    assert not (tmp_path / "termination-log").exists()


def test_inside_a_pod_the_sentences_become_the_termination_message(tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    log.touch()
    report(RefusalError(["the model is gone"]), io.StringIO(), log)
    assert log.read_text() == "oasis_runtime: the model is gone\n"


def test_the_termination_message_stays_within_what_the_kubelet_keeps(tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    log.touch()
    report(RefusalError(["x" * 5000]), io.StringIO(), log)
    assert log.stat().st_size == 4096


def test_a_termination_log_that_cannot_be_written_does_not_hide_the_sentence(
    tmp_path: Path,
) -> None:
    stream = io.StringIO()
    assert report(RefusalError(["no model"]), stream, tmp_path) == EX_CONFIG
    assert "no model" in stream.getvalue()
