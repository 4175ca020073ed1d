"""Build the project's Containerfiles with buildah, on base images from the cache."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from testbed import cache, progress
from testbed.images import oci

CERTIFICATES = Path("/etc/ssl/certs")
WHEELS = "/var/cache/wheels"
"""Where a build sees the folder of wheels."""


def storage() -> list[str]:
    """buildah with its storage in the cache."""
    folder = cache.root() / "buildah"
    return [
        "buildah",
        f"--root={folder / 'storage'}",
        f"--runroot={folder / 'run'}",
        "--storage-driver=overlay",
    ]


@dataclass(frozen=True)
class Build:
    """One Containerfile with what it is built from."""

    name: str
    containerfile: Path
    context: Path
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Build arguments; those that name a base image name a layout in ``bases``."""
    bases: Mapping[str, Path] = field(default_factory=dict)
    """Build argument to the image layout that it stands for."""
    wheels: Path | None = None
    """pip takes packages from here and asks no index."""

    def command(self, base_names: Mapping[str, str], target: str) -> list[str]:
        """buildah's command line. Layers are not compressed: they stay on this machine."""
        values = {**self.arguments, **base_names}
        volumes = [f"{CERTIFICATES}:{CERTIFICATES}:ro"]
        if self.wheels is not None:
            values |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": WHEELS}
            volumes.append(f"{self.wheels}:{WHEELS}:ro")
        return [
            *storage(),
            "bud",
            "--isolation=chroot",
            "--network=host",
            "--pull-never",
            "--disable-compression",
            "--timestamp=0",
            *(f"--volume={volume}" for volume in volumes),
            *(f"--build-arg={name}={value}" for name, value in values.items()),
            f"--file={self.containerfile}",
            f"--tag={target}",
            str(self.context),
        ]


def local_copy(layout: Path) -> str:
    """Name in buildah's storage of an image layout, copied there when it is not yet."""
    # buildah makes the name out of the path that it is given, and refuses one with a dot in it.
    name = f"localhost/{layout.name}:latest"
    if not _has(name):
        log = progress.log_file(f"pull-{layout.name}")
        with progress.step(f"buildah reads the base image {layout.name}"):
            source = f"oci:{layout.name}:{oci.tag(layout)}"
            progress.run([*storage(), "pull", "--quiet", source], log, cwd=layout.parent)
            stale = outdated(_names(), name)
            if stale:
                progress.run([*storage(), "rmi", *stale], log)
    return name


def outdated(names: list[str], name: str) -> list[str]:
    """Those of ``names`` that are an earlier ``name``: alike up to the key of their layout."""
    key = re.compile(r"-[0-9a-f]{12}:latest$")
    return [other for other in names if other != name and key.sub("", other) == key.sub("", name)]


def _names() -> list[str]:
    listing = subprocess.run(
        [*storage(), "images", "--format", "{{.Name}}:{{.Tag}}"], capture_output=True, text=True
    )
    return listing.stdout.split()


def _has(name: str) -> bool:
    return (
        subprocess.run(
            [*storage(), "inspect", "--type=image", name], capture_output=True
        ).returncode
        == 0
    )


def build(wanted: Build, target: Path) -> Path:
    """Build into the image layout ``target``; returns it.

    Layers that the layout holds already, such as those of the base, are not written again.
    """
    log = progress.log_file(f"image-{wanted.name}")
    names = {argument: local_copy(layout) for argument, layout in wanted.bases.items()}
    with progress.step(f"image {wanted.name}"):
        progress.run(
            wanted.command(names, f"oci:{target}:testbed"),
            log,
            remedy="The last lines above are the failed build step's own.",
        )
    return target
