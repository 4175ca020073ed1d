"""What the engine makes of its machine: refuse, degrade, or only say so."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from oasis_runtime.contract import EngineConfig, LinkConfig, NumaConfig, Role
from oasis_runtime.serve.machine import after_links, check_numa, measure_links
from oasis_runtime.serve.model_folder import ModelShape
from oasis_runtime.serve.refusal import RefusalError
from oasis_runtime.tiers import links
from oasis_runtime.tiers.numa import HostView, Verdict


def two_sockets(root: Path, cpus: str) -> HostView:
    for node, cpulist in enumerate(["0-31", "32-63"]):
        folder = root / f"sys/devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpulist)
    status = root / "proc/self/status"
    status.parent.mkdir(parents=True)
    status.write_text(f"Cpus_allowed_list:\t{cpus}\nMems_allowed_list:\t0-1\n")
    return HostView(root / "sys", root / "proc", root / "dev")


def test_required_alignment_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusalError) as caught:
        check_numa(NumaConfig(policy="required"), two_sockets(tmp_path, "0-63"))
    (sentence,) = caught.value.sentences
    assert sentence.startswith("numa.policy is required and the process is not aligned: ")
    assert sentence.endswith("pin the pod to one NUMA node or set numa.policy to preferred")


def test_preferred_alignment_that_is_not_there_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        report = check_numa(NumaConfig(policy="preferred"), two_sockets(tmp_path, "0-63"))
    assert (report.verdict, report.bound) == (Verdict.MISALIGNED, False)
    assert "NUMA misaligned" in caplog.text


def test_policy_none_judges_but_binds_nothing(tmp_path: Path) -> None:
    report = check_numa(NumaConfig(policy="none"), two_sockets(tmp_path, "40-47"))
    assert (report.verdict, report.node, report.bound) == (Verdict.ALIGNED, 1, False)


def report(fast: float, role: Role) -> links.LinkReport:
    return links.LinkReport(
        links.judge_host_fast(fast, LinkConfig()),
        links.judge_network(role, links.NetworkSpeed("eth0", 100e9), LinkConfig()),
    )


def test_a_slow_link_makes_a_whole_engine_dense_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = EngineConfig(model="m")
    degraded = after_links(config, report(1e9, Role.BOTH))
    assert degraded.selection.mode == "dense"
    assert degraded.selection.budget_tokens == config.selection.budget_tokens
    assert "decoding densely" in caplog.text


def test_a_fast_link_changes_nothing() -> None:
    config = EngineConfig(model="m")
    assert after_links(config, report(60e9, Role.BOTH)) == config


def test_a_slow_link_keeps_a_decode_engine_from_starting() -> None:
    with pytest.raises(RefusalError, match="role decode does not start"):
        after_links(EngineConfig(model="m", role=Role.DECODE), report(1e9, Role.DECODE))


def test_this_machines_links_are_measured_with_the_models_pages() -> None:
    shape = ModelShape(head_dim=64, element_bytes=2)
    measured = measure_links(EngineConfig(model="m"), shape)
    assert measured.host_fast.bytes_per_second > 1e8
    assert not measured.network.enabled
