"""How images are built and which ones are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import environment
from testbed.images import build, buildah
from testbed.images.buildah import Build
from testbed.node import bed
from testbed.node.cluster import Cluster, variables
from testbed.problem import Problem

BUILD = Build("x", Path("/c/Containerfile"), Path("/c"), {"VERSION": "1"}, wheels=Path("/wheels"))


def test_with_wheels_pip_asks_no_index() -> None:
    command = BUILD.command({"BASE": "localhost/b:latest"}, "oci:/out:t")
    assert "--build-arg=PIP_NO_INDEX=1" in command
    assert f"--volume=/wheels:{buildah.WHEELS}:ro" in command
    assert "--build-arg=BASE=localhost/b:latest" in command


def test_the_stage_that_installs_vllm_takes_another_index() -> None:
    """A build argument is known from its line to the end of its stage, and pip reads this one."""
    text = (environment.CHECKOUT / "images/runtime/Containerfile").read_text()
    before, _ = text.split("sh /install.sh")
    assert "\nARG PIP_EXTRA_INDEX_URL\n" in before.rpartition("\nFROM ")[2]


def test_a_build_never_pulls() -> None:
    assert "--pull-never" in BUILD.command({}, "oci:/out:t")


def test_earlier_copies_of_a_base_are_outdated_and_other_bases_are_not() -> None:
    names = [
        "localhost/python-0123456789ab:latest",
        "localhost/python-ba9876543210:latest",
        "localhost/python-build-0123456789ab:latest",
    ]
    assert buildah.outdated(names, names[0]) == [names[1]]


def checkout(folder: Path) -> Path:
    for path in ("images/operator/Containerfile", "operator/a.py", "runtime/b.cpp"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
    return folder


@pytest.mark.parametrize(
    "path", ["images/operator/Containerfile", "operator/a.py", "runtime/b.cpp"]
)
def test_the_tag_of_an_image_follows_its_sources(tmp_path: Path, path: str) -> None:
    folder = checkout(tmp_path)
    before = build.key("operator", folder)
    assert build.key("operator", folder) == before
    (folder / path).write_text("changed")
    assert build.key("operator", folder) != before


def test_what_is_not_source_does_not_change_the_tag(tmp_path: Path) -> None:
    folder = checkout(tmp_path)
    before = build.key("operator", folder)
    (folder / "operator" / "a.cpython-311.pyc").write_text("x")
    assert build.key("operator", folder) == before


def test_an_unknown_image_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Problem, match="the images are operator, router, runtime"):
        build.build("operater")


LISTING = """\
REF TYPE DIGEST SIZE PLATFORMS LABELS
localhost/o/a:1 application/x sha256:m1 1 B linux/amd64 -
localhost/o/a:2 application/x sha256:m2 1 B linux/amd64 -
localhost/o/b:1 application/x sha256:m3 1 B linux/amd64 -
sha256:c1 application/x sha256:m1 1 B linux/amd64 -
sha256:c2 application/x sha256:m2 1 B linux/amd64 -
"""


def test_a_new_tag_supersedes_the_others_of_its_repository_and_their_digest_names() -> None:
    images = bed.stored_images(LISTING)
    assert bed.superseded(images, "localhost/o/a:2") == ["localhost/o/a:1", "sha256:c1"]


def test_a_cluster_finds_its_images_in_the_environment() -> None:
    cluster = Cluster.of({"KUBECONFIG": "/k", **variables({"operator": "localhost/o:1"})})
    assert cluster.image("operator") == "localhost/o:1"


def test_a_missing_image_is_named_with_the_command_that_brings_it() -> None:
    with pytest.raises(Problem, match="testbed images --load runtime"):
        Cluster.of({"KUBECONFIG": "/k"}).image("runtime")


def test_no_cluster_is_said_with_the_two_ways_to_one() -> None:
    with pytest.raises(Problem, match="testbed exec"):
        Cluster.of({})
