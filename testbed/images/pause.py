"""The sandbox image: one static program."""

from __future__ import annotations

from pathlib import Path

from testbed import cache, progress
from testbed.images import oci
from testbed.node import layout

SOURCE = Path(__file__).parent / "pause.c"


def archive() -> Path:
    """Archive of the image, made now when the cache has none."""

    def make(folder: Path) -> None:
        program = folder / "pause"
        log = progress.log_file("pause")
        progress.run(["gcc", "-static", "-Os", "-s", "-o", program, SOURCE], log)
        image = oci.Layout(folder)
        layer = image.layer_from_trees({"/pause": program})
        image.write_index(layout.PAUSE_IMAGE, [layer], oci.ImageConfig(entrypoint=("/pause",)))
        with (folder / "image.tar").open("wb") as out:
            oci.write_tar(folder, (), out)

    key = cache.fingerprint(layout.PAUSE_IMAGE, SOURCE, oci.FORMAT)
    return cache.entry("images", "pause", key, make) / "image.tar"
