"""Debian packages that the test bed uses, by what they are for."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable

from testbed import cache, host, progress

WAIT_FOR_DPKG = "-oDPkg::Lock::Timeout=600"
"""Somebody else's apt may be at it."""

PURPOSES: dict[str, tuple[str, ...]] = {
    "control-plane": ("openssl",),
    "python": (
        "python3-venv",
        "python3-dev",
        "binutils",
        "gcc",
        "g++",
        "libc6-dev",
        "libnuma1",
        "libgomp1",
    ),
    "node": (
        "containerd",
        "runc",
        "containernetworking-plugins",
        "nftables",
        "iptables",
        "iproute2",
        "procps",
        "util-linux",
        "openssl",
        "gcc",
        "libc6-dev",
    ),
    "images": ("mmdebstrap", "buildah", "python3-venv"),
}


def wanted(purposes: Iterable[str]) -> list[str]:
    """Packages of the purposes, each once, sorted."""
    return sorted({package for purpose in purposes for package in PURPOSES[purpose]})


def parse_installed(listing: str) -> set[str]:
    """Names of the packages that are fully installed, from lines ``NAME STATUS`` of dpkg-query."""
    rows = (line.split() for line in listing.splitlines())
    return {row[0] for row in rows if len(row) == 2 and row[1] == "installed"}


def missing(packages: Iterable[str]) -> list[str]:
    """Those of ``packages`` that are not installed."""
    listing = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\\n"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    installed = parse_installed(listing)
    return [package for package in packages if package not in installed]


def install(purposes: Iterable[str]) -> None:
    """Install what the purposes need and this machine lacks; nothing when all is there."""
    host.require_debian()
    names = wanted(purposes)
    if not missing(names):
        return
    host.require_root()
    with cache.locked(cache.root() / ".packages.lock"):
        _install(missing(names))


def _install(absent: list[str]) -> None:
    if not absent:
        return
    log = progress.log_file("packages")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with progress.step(f"installing {len(absent)} Debian packages: {' '.join(absent)}"):
        remedy = "Check that apt works here (`apt-get update`)."
        progress.run(["apt-get", "update", "-q"], log, env=quiet, remedy=remedy)
        progress.run(
            ["apt-get", "install", "-q", "-y", "--no-install-recommends", WAIT_FOR_DPKG, *absent],
            log,
            env=quiet,
            remedy=remedy,
        )
