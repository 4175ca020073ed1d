"""The sandbox image: one static program."""

from __future__ import annotations

import shutil
from pathlib import Path

from testbed import cache, progress
from testbed.images import oci
from testbed.node import layout

SOURCE = Path(__file__).parent / "pause.c"


def archive() -> Path:
    """Archive of the image, made now when the cache has none."""

    def make(out: Path) -> None:
        program = out / "pause"
        log = progress.log_file("pause")
        progress.run(["gcc", "-static", "-Os", "-s", "-o", program, SOURCE], log)
        image = oci.Layout(out / "layout")
        layer = image.layer_from_trees({"/pause": program})
        image.write_index(layout.PAUSE_IMAGE, [layer], oci.ImageConfig(entrypoint=("/pause",)))
        image.write_archive(out / "image.tar")
        shutil.rmtree(image.folder)

    key = cache.fingerprint(layout.PAUSE_IMAGE, SOURCE, Path(oci.__file__))
    return cache.entry("images", "pause", key, make) / "image.tar"
