"""The two links that sparse decode lives on, measured at start, and the gates in front of them.

*host_fast* carries pages from the host tier to the fast tier; *network* carries pages from a
prefill engine to a decode engine. Under its gate a link is not used unless the configuration
forces it: fetching over a slow link costs more than attending to everything.
"""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np

from oasis_runtime.contract import LinkConfig, Role

DEFAULT_PAGE_BYTES = 16 << 10
"""Page size to measure with where the model does not say its own (32 tokens of 128 wide heads)."""

_BUFFER_BYTES = 64 << 20
"""More than the last level cache of a small machine, little next to a tier."""
_MEASURE_SECONDS = 0.2
_SIOCGIFADDR = 0x8915
_SPEED_AWARE = ("bond", "vlan", "macvlan")
"""Virtual interfaces that report the speed of the adapter under them. A veth reports a constant."""


class LinkName(StrEnum):
    """Values of the metric label ``link``."""

    HOST_FAST = "host_fast"
    NETWORK = "network"


@dataclass(frozen=True)
class LinkDecision:
    """One link's measurement against its gate."""

    name: LinkName
    enabled: bool
    bytes_per_second: float
    """-1 where unknown."""
    under_gate: bool
    reason: str
    """One sentence for a person."""


@dataclass(frozen=True)
class LinkReport:
    host_fast: LinkDecision
    network: LinkDecision


@dataclass(frozen=True)
class LinkConsequence:
    """What the links mean for the engine."""

    refusals: tuple[str, ...] = ()
    """Sentences that keep it from starting."""
    dense: str | None = None
    """The sentence with which it goes on without sparse decode."""


@dataclass(frozen=True)
class NetworkSpeed:
    """Speed of the interface that carries the transfer address."""

    interface: str | None
    bits_per_second: float | None
    why_unknown: str = ""


def measure_copy(page_bytes: int, buffer_bytes: int = _BUFFER_BYTES) -> float:
    """Copy scattered pages between two pre-faulted buffers; bytes per second of the best pass.

    On a CPU engine both tiers are host memory, so this is the link. One pass gathers every page
    of the source in random order, as a prefetch does; passes repeat for about 0.2 s, because a
    neighbour on the machine only ever makes a pass slower.
    """
    pages = max(1, buffer_bytes // page_bytes)
    source = np.ones((pages, page_bytes), dtype=np.uint8)
    target = np.ones_like(source)
    order = np.random.default_rng(0).permutation(pages)
    best = float("inf")
    end = time.perf_counter() + _MEASURE_SECONDS
    while (start := time.perf_counter()) < end:
        # mode="clip" writes straight into `out`; the default buffers the whole result first.
        np.take(source, order, axis=0, out=target, mode="clip")
        best = min(best, time.perf_counter() - start)
    return source.nbytes / best


def interface_of(host: str) -> str | None:
    """The network interface that has the address (or name) ``host``, None if there is none."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return None
    wanted = {ipaddress.ip_address(str(info[4][0]).partition("%")[0]) for info in found}
    for _, name in socket.if_nameindex():
        if wanted & {*_ipv4_of(name), *_ipv6_of(name)}:
            return name
    return None


def network_speed(host: str, interface: str | None, sys: Path = Path("/sys")) -> NetworkSpeed:
    """Nominal speed of ``interface``, which carries the address ``host``.

    A virtual interface (a pod's veth, loopback) does not know what it runs over.
    """
    if interface is None:
        return NetworkSpeed(None, None, f"no interface of this machine has the address {host}")
    folder = sys / "class/net" / interface
    uevent = _read(folder / "uevent")
    kinds = [
        line.removeprefix("DEVTYPE=") for line in uevent.splitlines() if line.startswith("DEVTYPE=")
    ]
    if not (folder / "device").exists() and not any(kind in _SPEED_AWARE for kind in kinds):
        return NetworkSpeed(interface, None, f"{interface} is a virtual interface")
    try:
        megabits = int(_read(folder / "speed"))
    except ValueError:
        megabits = -1
    if megabits <= 0:
        return NetworkSpeed(interface, None, f"the driver of {interface} does not report it")
    return NetworkSpeed(interface, megabits * 1e6)


def judge_host_fast(bytes_per_second: float, gates: LinkConfig) -> LinkDecision:
    gate = gates.min_fast_bytes_per_second
    measured = f"the link from the host tier to the fast tier copies {bytes_per_second / 1e9:.1f}"
    return _decide(
        LinkName.HOST_FAST,
        bytes_per_second,
        under_gate=bytes_per_second < gate,
        force=gates.force,
        measured=f"{measured} GB/s",
        gate=f"{gate / 1e9:g} GB/s (links.min_fast_bytes_per_second)",
    )


def judge_network(role: Role, speed: NetworkSpeed, gates: LinkConfig) -> LinkDecision:
    """The transfer's link; an engine in one role has no peer and does not use it."""
    bytes_per_second = -1.0 if speed.bits_per_second is None else speed.bits_per_second / 8
    if role is Role.BOTH:
        return LinkDecision(
            LinkName.NETWORK, False, bytes_per_second, False, "role both has no peer to fetch from"
        )
    gate = gates.min_network_bits_per_second
    if speed.bits_per_second is None:
        measured = f"the speed of the network link is unknown ({speed.why_unknown})"
    else:
        gigabits = speed.bits_per_second / 1e9
        measured = f"the network link {speed.interface} runs at {gigabits:g} Gb/s"
    return _decide(
        LinkName.NETWORK,
        bytes_per_second,
        under_gate=gate > 0 and (speed.bits_per_second or 0.0) < gate,
        force=gates.force,
        measured=measured,
        gate=f"{gate / 1e9:g} Gb/s (links.min_network_bits_per_second)",
    )


def consequence(role: Role, report: LinkReport) -> LinkConsequence:
    """A prefill or decode engine needs both links; a whole engine can do without sparse decode."""
    refused = [link for link in (report.host_fast, report.network) if _kept_out(link)]
    if role is not Role.BOTH:
        return LinkConsequence(
            refusals=tuple(
                f"role {role} does not start: {link.reason}; use a faster link, "
                "or set links.force to true to use this one"
                for link in refused
            )
        )
    if refused:
        return LinkConsequence(
            dense=f"decoding densely: {report.host_fast.reason}; "
            "set links.force to true to decode sparsely all the same"
        )
    return LinkConsequence()


def _kept_out(link: LinkDecision) -> bool:
    return link.under_gate and not link.enabled


def _decide(
    name: LinkName,
    bytes_per_second: float,
    *,
    under_gate: bool,
    force: bool,
    measured: str,
    gate: str,
) -> LinkDecision:
    if not under_gate:
        reason = f"{measured}, the gate is {gate}"
    elif force:
        reason = f"{measured}, under the gate of {gate}, and links.force is set"
    else:
        reason = f"{measured}, under the gate of {gate}"
    return LinkDecision(name, not under_gate or force, bytes_per_second, under_gate, reason)


def _ipv4_of(interface: str) -> set[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    request = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError:
            return set()
    return {ipaddress.IPv4Address(answer[20:24])}


def _ipv6_of(interface: str) -> set[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """From ``/proc/net/if_inet6``: address, index, prefix length, scope, flags, name."""
    rows = [line.split() for line in _read(Path("/proc/net/if_inet6")).splitlines()]
    return {ipaddress.IPv6Address(bytes.fromhex(row[0])) for row in rows if row[-1] == interface}


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
