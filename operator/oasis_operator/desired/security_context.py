"""The restricted security context that every pod of an OasisDeployment runs in."""

from __future__ import annotations

from oasis_operator.desired.metadata import Manifest

USER = 65532
"""That of the project's images; said here so that images of others run without root too."""


def pod_security() -> Manifest:
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> Manifest:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
