"""Threads of the CPU worker: pinned only where the CPUs are the engine's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasis_runtime.serve.threads import CpuShare, read_quota, thread_variables

OPENMP = {"VLLM_CPU_OMP_THREADS_BIND", "OMP_NUM_THREADS"}


@pytest.mark.parametrize(
    ("allowed", "quota", "threads"),
    [(1, None, "1"), (2, None, "1"), (2, 0.5, "1"), (64, 0.5, "1"), (64, 4.0, "3"), (8, 2.5, "1")],
)
def test_shared_or_few_cpus_get_unpinned_threads_within_the_quota(
    allowed: int, quota: float | None, threads: str
) -> None:
    variables = thread_variables(CpuShare(allowed, quota), {})
    assert variables["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
    assert variables["OMP_NUM_THREADS"] == threads


@pytest.mark.parametrize(("allowed", "quota"), [(3, None), (8, 8.0), (8, 16.0), (64, None)])
def test_cpus_of_its_own_are_left_to_vllms_pinning(allowed: int, quota: float | None) -> None:
    assert not OPENMP & thread_variables(CpuShare(allowed, quota), {}).keys()


def test_the_users_binding_is_left_alone() -> None:
    variables = thread_variables(CpuShare(2, None), {"VLLM_CPU_OMP_THREADS_BIND": "0-1"})
    assert not OPENMP & variables.keys()


@pytest.mark.parametrize("share", [CpuShare(2, None), CpuShare(64, None)])
def test_drafting_may_not_change_the_number_of_openmp_threads(share: CpuShare) -> None:
    assert thread_variables(share, {})["NUMBA_THREADING_LAYER"] == "workqueue"


def test_the_users_threading_layer_is_kept() -> None:
    variables = thread_variables(CpuShare(2, None), {"NUMBA_THREADING_LAYER": "tbb"})
    assert "NUMBA_THREADING_LAYER" not in variables


def test_the_users_thread_count_is_kept() -> None:
    variables = thread_variables(CpuShare(2, None), {"OMP_NUM_THREADS": "2"})
    assert variables["OMP_NUM_THREADS"] == "2"


@settings(deadline=None)
@given(st.integers(1, 512), st.none() | st.floats(0.01, 512))
def test_there_is_always_a_thread_and_never_more_than_the_quota(
    allowed: int, quota: float | None
) -> None:
    variables = thread_variables(CpuShare(allowed, quota), {})
    if "OMP_NUM_THREADS" in variables:
        assert 1 <= int(variables["OMP_NUM_THREADS"]) <= max(1, min(allowed, quota or allowed))


@pytest.mark.parametrize(("text", "quota"), [("50000 100000", 0.5), ("max 100000", None)])
def test_the_quota_of_cgroup_v2(tmp_path: Path, text: str, quota: float | None) -> None:
    (tmp_path / "cpu.max").write_text(text + "\n")
    assert read_quota(tmp_path) == quota


@pytest.mark.parametrize(("limit", "quota"), [("200000", 2.0), ("-1", None)])
def test_the_quota_of_cgroup_v1(tmp_path: Path, limit: str, quota: float | None) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text(limit + "\n")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000\n")
    assert read_quota(tmp_path) == quota


def test_no_cgroup_is_no_quota(tmp_path: Path) -> None:
    assert read_quota(tmp_path) is None
