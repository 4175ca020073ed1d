"""Image layouts: equal content gives equal digests, and only what is needed is kept and sent."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from testbed.images import engine, oci
from testbed.images.oci import ImageConfig


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "file").write_text("content")
    (folder / "link").symlink_to("sub/file")
    return folder


def image(folder: Path, tree: Path, left_out: tuple[str, ...] = ()) -> oci.Layout:
    layout = oci.Layout(folder)
    layer = layout.layer_from_trees({"/opt/tree": tree}, left_out)
    layout.write_index("localhost/a/b:1", [layer], ImageConfig(entrypoint=("/x",)))
    return layout


def layer_names(layout: Path) -> list[str]:
    with tarfile.open(oci.blob(layout, oci.layers(layout)[0])) as tar:
        return tar.getnames()


def test_a_layer_holds_the_tree_under_its_destination(tmp_path: Path, tree: Path) -> None:
    image(tmp_path / "image", tree)
    assert layer_names(tmp_path / "image") == [
        "opt",
        "opt/tree",
        "opt/tree/link",
        "opt/tree/sub",
        "opt/tree/sub/file",
    ]


def test_what_is_left_out_is_not_there(tmp_path: Path, tree: Path) -> None:
    image(tmp_path / "image", tree, ("*/su*",))
    assert layer_names(tmp_path / "image") == ["opt", "opt/tree", "opt/tree/link"]


def test_what_has_the_name_elsewhere_is_not_left_out(tmp_path: Path, tree: Path) -> None:
    (tree / "file").write_text("of tests")
    image(tmp_path / "image", tree, ("*/tree/file",))
    names = layer_names(tmp_path / "image")
    assert "opt/tree/file" not in names
    assert "opt/tree/sub/file" in names


def test_an_engine_s_base_has_neither_the_checkout_nor_triton(tmp_path: Path) -> None:
    packages = tmp_path / "venv" / "lib" / "python3" / "site-packages"
    for name in ("triton/x.py", "triton-3.dist-info/RECORD", "__editable__.oasiskv.pth", "np.py"):
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).touch()
    for name in ("oasiskv-1.dist-info", "vllm/kernels/triton"):
        (packages / name).mkdir(parents=True)
    layout = oci.Layout(tmp_path / "image")
    layer = layout.layer_from_trees({"/opt/venv": tmp_path / "venv"}, engine.LEFT_OUT)
    layout.write_index("localhost/a/b:1", [layer], ImageConfig())
    top = "opt/venv/lib/python3/site-packages/"
    names = [name.removeprefix(top) for name in layer_names(layout.folder) if top in name]
    assert names == ["np.py", "vllm", "vllm/kernels", "vllm/kernels/triton"]


def test_file_times_do_not_change_the_digest(tmp_path: Path, tree: Path) -> None:
    image(tmp_path / "one", tree)
    (tree / "sub" / "file").write_text("content")
    image(tmp_path / "two", tree)
    assert oci.layers(tmp_path / "one") == oci.layers(tmp_path / "two")


def test_content_does_change_the_digest(tmp_path: Path, tree: Path) -> None:
    image(tmp_path / "one", tree)
    (tree / "sub" / "file").write_text("another")
    image(tmp_path / "two", tree)
    assert oci.layers(tmp_path / "one") != oci.layers(tmp_path / "two")


def test_the_configuration_names_the_layers_by_their_uncompressed_digest(
    tmp_path: Path, tree: Path
) -> None:
    layout = image(tmp_path / "image", tree)
    config = json.loads(oci.blob(layout.folder, oci.manifest(layout.folder)["config"]).read_text())
    digests = [layer["digest"] for layer in oci.layers(layout.folder)]
    assert config["rootfs"]["diff_ids"] == digests
    assert config["config"]["Entrypoint"] == ["/x"]


def test_an_archive_leaves_out_blobs_that_are_there_already(tmp_path: Path, tree: Path) -> None:
    layout = image(tmp_path / "image", tree).folder
    layer = oci.layers(layout)[0]["digest"]
    out = io.BytesIO()
    oci.write_tar(layout, {layer}, out)
    out.seek(0)
    with tarfile.open(fileobj=out) as tar:
        names = tar.getnames()
    assert "index.json" in names
    assert f"blobs/sha256/{layer.removeprefix('sha256:')}" not in names
    assert len([name for name in names if name.startswith("blobs/")]) == 2


def test_blobs_that_belong_to_no_image_are_removed(tmp_path: Path, tree: Path) -> None:
    layout = image(tmp_path / "image", tree).folder
    (layout / "blobs" / "sha256" / "stray").touch()
    oci.remove_unused(layout)
    assert {path.name for path in (layout / "blobs" / "sha256").iterdir()} == {
        path.name for path in oci.used_blobs(layout)
    }


def test_a_renamed_image_is_found_under_its_new_tag(tmp_path: Path, tree: Path) -> None:
    layout = image(tmp_path / "image", tree).folder
    oci.rename(layout, "localhost/a/b:2")
    assert oci.tag(layout) == "2"
