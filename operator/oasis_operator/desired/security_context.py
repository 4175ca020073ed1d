"""The restricted security context that every pod of an OasisDeployment runs in."""

from __future__ import annotations

from oasis_operator.desired.metadata import Manifest

USER = 10001
"""Set even though images name a user: ``runAsNonRoot`` can only check numbers."""


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
