"""The restricted security context that every pod of an OasisDeployment runs in."""

from __future__ import annotations

from oasis_operator.api.resource import OasisDeployment
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


def container_security(*capabilities: str) -> Manifest:
    """Without capabilities but for those named; each is an exception to explain."""
    granted = {"add": list(capabilities)} if capabilities else {}
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], **granted},
    }


def image_pull_secrets(od: OasisDeployment) -> Manifest:
    """The part of a pod's spec that names them; empty without any."""
    names = od.spec.security.image_pull_secrets
    return {"imagePullSecrets": [{"name": name} for name in names]} if names else {}
