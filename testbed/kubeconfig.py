"""Kubeconfig files, written as JSON (which is YAML) so that no YAML library is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CONTEXT = "oasiskv-testbed"


def _config(server: str, authority: Path, user: dict[str, str], namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": CONTEXT,
        "clusters": [
            {
                "name": CONTEXT,
                "cluster": {"server": server, "certificate-authority": str(authority)},
            }
        ],
        "users": [{"name": "user", "user": user}],
        "contexts": [
            {
                "name": CONTEXT,
                "context": {"cluster": CONTEXT, "user": "user", "namespace": namespace},
            }
        ],
    }


def for_certificate(server: str, folder: Path, name: str) -> dict[str, Any]:
    """Kubeconfig of the component whose ``NAME.crt`` and ``NAME.key`` are in ``folder``."""
    user = {
        "client-certificate": str(folder / f"{name}.crt"),
        "client-key": str(folder / f"{name}.key"),
    }
    return _config(server, folder / "ca.crt", user, "default")


def for_token(server: str, authority: Path, token: str, namespace: str) -> dict[str, Any]:
    """Kubeconfig of a service account."""
    return _config(server, authority, {"token": token}, namespace)


def write(path: Path, config: dict[str, Any]) -> Path:
    """Write it readable for its owner only, and return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(json.dumps(config, indent=1))
    return path
