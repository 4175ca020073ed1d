"""What the demo asks of a cluster that the user has."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import demo
from testbed.images import build
from testbed.problem import Problem


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's KUBECONFIG, and the one folder of programs; nothing is kept of the machine's."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("OASISKV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in build.NAMES:
        monkeypatch.setenv(f"OASISKV_IMAGE_{name.upper()}", f"registry.example/{name}:1")
    return tmp_path


def test_images_that_it_can_pull_are_asked_for_by_their_variables(
    users: Path,  # noqa: ARG001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OASISKV_IMAGE_ROUTER")
    monkeypatch.delenv("OASISKV_IMAGE_RUNTIME")
    with pytest.raises(Problem, match=r"set OASISKV_IMAGE_ROUTER, OASISKV_IMAGE_RUNTIME$"):
        demo.demo()


def test_kubectl_and_helm_are_asked_for(users: Path) -> None:
    with pytest.raises(Problem, match="no kubectl on PATH; install it"):
        demo.demo()
    program(users, "kubectl", "exit 0")
    with pytest.raises(Problem, match="no helm on PATH; install it"):
        demo.demo()


def test_a_cluster_that_does_not_answer_is_told_with_kubectls_words(users: Path) -> None:
    program(users, "kubectl", "echo connection refused >&2; exit 1")
    program(users, "helm", "exit 0")
    with pytest.raises(Problem, match=r"its cluster does not answer: .*connection refused"):
        demo.demo()
