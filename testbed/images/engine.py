"""Base of the runtime image in the test bed: Debian's Python with the slim environment in it."""

from __future__ import annotations

import shutil
from pathlib import Path

from testbed import cache, environment, progress
from testbed.images import debian, oci

NAME = "python-vllm"
LEFT_OUT = tuple(
    f"*/site-packages/{name}"
    for name in (
        "__editable__*",
        f"{environment.DISTRIBUTION}-*.dist-info",
        "triton",
        "triton-*.dist-info",
    )
)
"""The editable install of a checkout, which is not there in an image, and Triton: 0.7 GB that
tests of kernels need and an engine on a CPU does not."""


def base() -> Path:
    """Image layout, written now when the cache has none for this environment."""
    python = debian.python()

    def make(folder: Path) -> None:
        shutil.copytree(python / "blobs", folder / "blobs")
        image = oci.Layout(folder)
        with progress.step("base image of the runtime (2.6 GB)"):
            layer = image.layer_from_trees({"/opt/venv": environment.make()}, LEFT_OUT)
            config = oci.ImageConfig(environment={"PATH": debian.PATH})
            layers = [*oci.layers(python), layer]
            image.write_index(debian.local_name(NAME), layers, config)

    return cache.entry("images", NAME, key(), make)


def key() -> str:
    """Changes with the environment and with what is below it."""
    python = f"python-{debian.key(debian.RUN_PACKAGES)}"
    return cache.fingerprint(environment.key(), python, oci.FORMAT, *LEFT_OUT)
