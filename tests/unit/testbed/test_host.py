"""Where the test bed cannot work it says so in a sentence that names the other ways."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import host
from testbed.problem import OTHER_WAYS, Problem

DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\n'
UBUNTU = 'NAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian\n'
FEDORA = 'NAME="Fedora Linux"\nID=fedora\n'


@pytest.mark.parametrize(("text", "expected"), [(DEBIAN, True), (UBUNTU, True), (FEDORA, False)])
def test_debian_and_what_is_made_from_it_are_recognised(text: str, expected: bool) -> None:
    assert host.debian_like(text) is expected


def test_a_user_who_is_not_root_is_told_the_other_ways() -> None:
    with pytest.raises(Problem, match="must run as root") as caught:
        host.require_root(user_id=1000)
    assert OTHER_WAYS in str(caught.value)


def test_root_passes() -> None:
    host.require_root(user_id=0)


def test_another_distribution_is_told_the_other_ways(tmp_path: Path) -> None:
    (tmp_path / "os-release").write_text(FEDORA)
    with pytest.raises(Problem, match="not Debian-like") as caught:
        host.require_debian(tmp_path / "os-release")
    assert OTHER_WAYS in str(caught.value)


def test_a_machine_without_go_is_told_the_other_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Problem, match="no `go` on PATH") as caught:
        host.require_go()
    assert "KUBEBUILDER_ASSETS" in str(caught.value)
    assert OTHER_WAYS in str(caught.value)


def test_an_old_go_is_named_with_the_version_that_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho go1.19.8\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(Problem, match=r"is go1\.19\.8"):
        host.require_go()


@pytest.mark.parametrize(
    ("text", "version"),
    [("go1.26.8", (1, 26)), ("go1.27rc1", (1, 27)), ("devel go1.28-abc", (1, 28))],
)
def test_go_versions_of_releases_and_candidates_are_read(
    text: str, version: tuple[int, int]
) -> None:
    assert host.go_version(text) == version
