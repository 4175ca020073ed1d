"""The command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import cli, progress
from testbed.problem import Problem


def test_exec_drops_the_dashes_that_keep_flags_apart() -> None:
    assert cli.spoken(["--", "kubectl", "get", "-A"]) == ["kubectl", "get", "-A"]


def test_a_problem_is_one_sentence_and_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OASISKV_CACHE", str(tmp_path))
    assert cli.main(["exec", "--", "true"]) == 1
    assert capsys.readouterr().err == "testbed: no node is up; run `python3 -m testbed up`\n"


def test_a_failed_command_shows_the_end_of_its_log_and_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="broken") as caught:
        progress.run(["sh", "-c", "echo broken; exit 3"], tmp_path / "log", remedy="Mend it.")
    assert str(caught.value).endswith(f"the whole log is {tmp_path / 'log'}. Mend it.")


@pytest.mark.parametrize(
    ("value", "text"), [(7.34, "7.3 s"), (59.9, "59.9 s"), (60, "1 min 00 s"), (292, "4 min 52 s")]
)
def test_times_are_written_for_people(value: float, text: str) -> None:
    assert progress.seconds(value) == text


def test_a_cache_that_cannot_be_written_is_a_sentence_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OASISKV_CACHE", "/proc/not-here")
    monkeypatch.setattr("testbed.demo.demo", lambda: progress.log_file("demo"))
    assert cli.main(["demo"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("testbed: cannot use /proc/not-here")
    assert "set OASISKV_CACHE" in said
