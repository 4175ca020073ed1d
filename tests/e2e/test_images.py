"""What is in the images that the cluster runs, read from their layouts."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed import cache
from testbed.images import build, oci
from testbed.node.cluster import Cluster

LEFTOVERS = re.compile(
    r"^(var/lib/apt/lists/.*_Packages|var/cache/apt/.*\.(deb|bin)|root/\.cache/.*|tmp/.+"
    r"|wheels/.*|src/.*|.*/\.cache/pip/.*|var/log/.*\.log)$"
)
"""Of package managers and build stages."""


def layout(cluster: Cluster, name: str) -> Path:
    """The layout that the cluster's image was imported from."""
    folder = cache.finished("images", name, cluster.image(name).rpartition(":")[2])
    assert folder is not None
    return folder


def settings(image: Path) -> dict[str, Any]:
    document = json.loads(oci.blob(image, oci.manifest(image)["config"]).read_text())
    config: dict[str, Any] = document["config"]
    return config


def files(image: Path) -> Iterator[str]:
    """But for the layer that stands in for vLLM's installation in the test bed only."""
    for layer in oci.layers(image):
        if layer["size"] < 1 << 30:
            with tarfile.open(oci.blob(image, layer)) as archive:
                yield from (one.name.removeprefix("./") for one in archive if one.isreg())


@pytest.mark.parametrize("name", build.NAMES)
def test_an_image_runs_as_nobody_and_says_what_it_is(node: Cluster, name: str) -> None:
    config = settings(layout(node, name))
    assert config["User"] == "65532:65532"
    labels = {
        key.removeprefix("org.opencontainers.image."): text
        for key, text in config["Labels"].items()
    }
    assert labels["title"] == f"oasiskv-{name}"
    assert labels["licenses"] == "Apache-2.0"
    assert re.fullmatch(r"\d+\.\d+\.\d+", labels["version"])
    assert labels["description"]


@pytest.mark.parametrize("name", build.NAMES)
def test_an_image_holds_nothing_of_its_making(node: Cluster, name: str) -> None:
    names = list(files(layout(node, name)))
    assert len(names) > 1_000
    assert [name for name in names if LEFTOVERS.match(name)] == []


def test_operator_and_router_are_small(node: Cluster) -> None:
    for name in ("operator", "router"):
        size = sum(layer["size"] for layer in oci.layers(layout(node, name)))
        assert size < 400 << 20
