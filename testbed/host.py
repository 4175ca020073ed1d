"""Whether this machine can carry a bed, and what to do where it cannot."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from testbed import versions
from testbed.problem import OTHER_WAYS, Problem

OS_RELEASE = Path("/etc/os-release")


def debian_like(os_release: str) -> bool:
    """Whether an ``/etc/os-release`` names Debian or something made from it."""
    fields = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', os_release, flags=re.MULTILINE))
    return "debian" in (fields.get("ID", ""), *fields.get("ID_LIKE", "").split())


def require_root(user_id: int | None = None) -> None:
    """Raise Problem unless run as root."""
    if (os.geteuid() if user_id is None else user_id) != 0:
        raise Problem(
            "the test bed makes network and mount namespaces and must run as root; use sudo. "
            + OTHER_WAYS
        )


def require_debian(os_release: Path = OS_RELEASE) -> None:
    """Raise Problem unless packages can be installed with apt."""
    text = os_release.read_text() if os_release.exists() else ""
    if not debian_like(text):
        raise Problem(
            "the test bed takes its packages from Debian 12 with apt, and this system is not "
            f"Debian-like ({os_release} does not say so). {OTHER_WAYS}"
        )


def go_version(text: str) -> tuple[int, int]:
    """Major and minor from what ``go env GOVERSION`` prints, such as ``go1.26.8``."""
    found = re.search(r"go(\d+)\.(\d+)", text)
    if found is None:
        raise Problem(f"cannot read a Go version from {text!r}; is `go` on PATH the Go compiler?")
    return int(found[1]), int(found[2])


def require_go() -> str:
    """Path of a Go compiler that is new enough; raises Problem without one."""
    wanted = ".".join(map(str, versions.GO_MINIMUM))
    go = shutil.which("go")
    if go is None:
        raise Problem(
            f"Kubernetes {versions.KUBERNETES} is built from source here, which needs Go {wanted} "
            "or newer, and there is no `go` on PATH; install Go, or set KUBEBUILDER_ASSETS to a "
            f"folder with the built programs. {OTHER_WAYS}"
        )
    answer = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True).stdout.strip()
    if go_version(answer) < versions.GO_MINIMUM:
        raise Problem(
            f"Go {wanted} or newer is needed and {go} is {answer}; install a newer Go, or set "
            f"KUBEBUILDER_ASSETS to a folder with the built programs. {OTHER_WAYS}"
        )
    return go
