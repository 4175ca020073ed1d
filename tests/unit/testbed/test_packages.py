"""Debian packages: only what is missing."""

from __future__ import annotations

from testbed import packages


def test_a_package_of_two_purposes_is_wanted_once() -> None:
    assert packages.wanted(["node", "python"]).count("gcc") == 1


def test_only_fully_installed_packages_count() -> None:
    listing = "curl installed\nrunc config-files\nnftables not-installed\nodd\n"
    assert packages.parse_installed(listing) == {"curl"}
