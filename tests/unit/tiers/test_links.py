"""Links: how fast they are, and what follows under the gate."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasis_runtime.contract import LinkConfig, Role
from oasis_runtime.tiers import links
from oasis_runtime.tiers.links import LinkDecision, LinkReport, NetworkSpeed

GATES = LinkConfig()
FORCED = LinkConfig(force=True)
FAST_ENOUGH = GATES.min_fast_bytes_per_second
NETWORK_ENOUGH = GATES.min_network_bits_per_second


def report(fast: float, network_bits: float | None, role: Role, gates: LinkConfig) -> LinkReport:
    return LinkReport(
        links.judge_host_fast(fast, gates),
        links.judge_network(role, NetworkSpeed("eth0", network_bits, "eth0 is virtual"), gates),
    )


def test_a_copy_takes_under_a_second_and_has_a_plausible_rate() -> None:
    # CPU time, as the machine may be busy with something else.
    start = time.process_time()
    rate = links.measure_copy(16 << 10)
    assert time.process_time() - start < 1.0
    assert 1e7 < rate < 1e12


def test_a_page_larger_than_the_buffer_is_still_measured() -> None:
    assert links.measure_copy(page_bytes=2 << 20, buffer_bytes=1 << 20) > 0


@settings(deadline=None)
@given(st.floats(0, 1e13), st.booleans())
def test_the_host_link_is_on_from_its_gate_upward_or_when_forced(rate: float, force: bool) -> None:
    decision = links.judge_host_fast(rate, LinkConfig(force=force))
    assert decision.under_gate == (rate < FAST_ENOUGH)
    assert decision.enabled == (rate >= FAST_ENOUGH or force)
    assert decision.bytes_per_second == rate


def test_the_sentence_names_the_measurement_the_gate_and_its_setting() -> None:
    reason = links.judge_host_fast(11.04e9, GATES).reason
    assert "11.0 GB/s" in reason
    assert "50 GB/s (links.min_fast_bytes_per_second)" in reason


def test_a_forced_link_still_says_that_it_is_under_its_gate() -> None:
    decision = links.judge_host_fast(1e9, FORCED)
    assert decision.enabled
    assert decision.under_gate
    assert "under the gate" in decision.reason


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE])
def test_an_unknown_network_speed_is_under_the_gate(role: Role) -> None:
    decision = links.judge_network(role, NetworkSpeed("eth0", None, "eth0 is virtual"), GATES)
    assert (decision.enabled, decision.under_gate) == (False, True)
    assert decision.bytes_per_second == -1
    assert "unknown (eth0 is virtual)" in decision.reason


def test_a_gate_of_zero_lets_an_unknown_speed_pass() -> None:
    gates = LinkConfig(min_network_bits_per_second=0)
    decision = links.judge_network(Role.DECODE, NetworkSpeed("eth0", None, "virtual"), gates)
    assert (decision.enabled, decision.under_gate) == (True, False)


def test_the_network_rate_is_given_in_bytes() -> None:
    decision = links.judge_network(Role.DECODE, NetworkSpeed("ib0", 200e9), GATES)
    assert decision.bytes_per_second == 25e9
    assert decision.enabled


def test_an_engine_in_one_role_does_not_use_the_network_and_is_not_blamed_for_it() -> None:
    decision = links.judge_network(Role.BOTH, NetworkSpeed("lo", None, "virtual"), GATES)
    assert (decision.enabled, decision.under_gate) == (False, False)


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE])
@pytest.mark.parametrize(
    ("fast", "network", "sentences"),
    [
        (FAST_ENOUGH, NETWORK_ENOUGH, 0),
        (FAST_ENOUGH - 1, NETWORK_ENOUGH, 1),
        (FAST_ENOUGH, NETWORK_ENOUGH - 1, 1),
        (FAST_ENOUGH, None, 1),
        (1e9, None, 2),
    ],
)
def test_a_transfer_engine_refuses_every_link_under_its_gate(
    role: Role, fast: float, network: float | None, sentences: int
) -> None:
    means = links.consequence(role, report(fast, network, role, GATES))
    assert len(means.refusals) == sentences
    assert means.dense is None
    assert all("links.force" in sentence for sentence in means.refusals)


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE])
def test_a_forced_transfer_engine_starts_over_any_link(role: Role) -> None:
    assert links.consequence(role, report(1e9, None, role, FORCED)) == links.LinkConsequence()


def test_a_whole_engine_under_the_host_gate_decodes_densely() -> None:
    means = links.consequence(Role.BOTH, report(1e9, None, Role.BOTH, GATES))
    assert means.refusals == ()
    assert means.dense is not None
    assert "1.0 GB/s" in means.dense
    assert "links.force" in means.dense


@pytest.mark.parametrize(("fast", "gates"), [(FAST_ENOUGH, GATES), (1e9, FORCED)])
def test_a_whole_engine_over_its_gate_or_forced_decodes_sparsely(
    fast: float, gates: LinkConfig
) -> None:
    assert links.consequence(Role.BOTH, report(fast, None, Role.BOTH, gates)).dense is None


def interface(sys: Path, name: str, *, speed: str, physical: bool = False, kind: str = "") -> None:
    folder = sys / "class/net" / name
    folder.mkdir(parents=True)
    (folder / "speed").write_text(speed + "\n")
    devtype = f"DEVTYPE={kind}\n" if kind else ""
    (folder / "uevent").write_text(f"{devtype}INTERFACE={name}\nIFINDEX=4\n")
    if physical:
        (folder / "device").mkdir()


def test_an_adapter_has_the_speed_its_driver_reports(tmp_path: Path) -> None:
    interface(tmp_path, "eth0", speed="100000", physical=True)
    assert links.network_speed("10.0.0.1", "eth0", tmp_path).bits_per_second == 100e9


@pytest.mark.parametrize("kind", ["bond", "vlan", "macvlan"])
def test_an_interface_on_top_of_adapters_has_their_speed(tmp_path: Path, kind: str) -> None:
    interface(tmp_path, "up0", speed="200000", kind=kind)
    assert links.network_speed("10.0.0.1", "up0", tmp_path).bits_per_second == 200e9


def test_the_constant_that_a_veth_reports_is_not_believed(tmp_path: Path) -> None:
    interface(tmp_path, "eth0", speed="10000")
    speed = links.network_speed("10.0.0.1", "eth0", tmp_path)
    assert speed.bits_per_second is None
    assert "virtual" in speed.why_unknown


@pytest.mark.parametrize("speed", ["-1", "0", ""])
def test_an_adapter_that_does_not_report_its_speed_is_unknown(tmp_path: Path, speed: str) -> None:
    interface(tmp_path, "eth0", speed=speed, physical=True)
    assert links.network_speed("10.0.0.1", "eth0", tmp_path).bits_per_second is None


def test_an_address_of_no_interface_is_unknown_and_named() -> None:
    speed = links.network_speed("192.0.2.77", None)
    assert speed.bits_per_second is None
    assert "192.0.2.77" in speed.why_unknown


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_loopback_is_carried_by_lo(host: str) -> None:
    assert links.interface_of(host) == "lo"


@pytest.mark.parametrize("host", ["192.0.2.77", "no-such-host.invalid"])
def test_a_foreign_address_has_no_interface(host: str) -> None:
    assert links.interface_of(host) is None


def test_the_names_of_the_links_are_the_label_values() -> None:
    decisions: list[LinkDecision] = [
        links.judge_host_fast(1e9, GATES),
        links.judge_network(Role.BOTH, NetworkSpeed(None, None), GATES),
    ]
    assert [str(decision.name) for decision in decisions] == ["host_fast", "network"]
