"""OCI image layouts written without a container tool.

A layout is a folder with ``index.json`` and content-addressed blobs (OCI image specification,
image-layout.md). Layers are plain tar: compressing gigabytes that never leave the machine would
cost more time than it saves disk.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, Any

LAYER = "application/vnd.oci.image.layer.v1.tar"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
NAME_ANNOTATION = "io.containerd.image.name"
TAG_ANNOTATION = "org.opencontainers.image.ref.name"
FORMAT = "1"
"""Part of every layout's cache key; raise it when layers come out different."""
_CHUNK = 1 << 20

Descriptor = dict[str, Any]


@dataclass(frozen=True)
class ImageConfig:
    """What a container of the image runs by default."""

    entrypoint: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str = ""

    def document(self, layers: Iterable[Descriptor]) -> dict[str, Any]:
        """The image configuration; layers are not compressed, so their digests are the diff ids."""
        config: dict[str, Any] = {"WorkingDir": "/"}
        if self.entrypoint:
            config["Entrypoint"] = list(self.entrypoint)
        if self.environment:
            config["Env"] = [f"{name}={value}" for name, value in self.environment.items()]
        if self.user:
            config["User"] = self.user
        return {
            "architecture": "amd64",
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
        }


class _Hashing(io.RawIOBase):
    """A writer that knows the digest and length of what passed through it."""

    def __init__(self, target: IO[bytes]) -> None:
        self.target = target
        self.digest = hashlib.sha256()
        self.length = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.digest.update(data)
        self.length += len(data)
        return self.target.write(data)


class Layout:
    """An image layout that is being written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.blobs = folder / "blobs" / "sha256"
        self.blobs.mkdir(parents=True, exist_ok=True)

    def layer_from_tar(self, archive: Path) -> Descriptor:
        """A layer that is an existing tar, such as a root file system."""
        with archive.open("rb") as source, self._partial().open("wb") as raw:
            out = _Hashing(raw)
            while chunk := source.read(_CHUNK):
                out.write(chunk)
        return self._descriptor(out)

    def layer_from_trees(
        self, trees: Mapping[str, Path], left_out: Iterable[str] = ()
    ) -> Descriptor:
        """A layer with each file or folder at its absolute destination.

        Files and folders whose path in the layer matches a pattern in ``left_out`` are skipped;
        ``*`` stands for slashes too. Owners and times are dropped and the order is fixed: equal
        content, equal digest.
        """
        with self._partial().open("wb", buffering=_CHUNK) as raw:
            out = _Hashing(raw)
            with tarfile.open(
                fileobj=out, mode="w|", format=tarfile.PAX_FORMAT, bufsize=_CHUNK
            ) as tar:
                _add_trees(tar, trees, tuple(left_out))
        return self._descriptor(out)

    def write_index(self, name: str, layers: list[Descriptor], config: ImageConfig) -> None:
        """Make the layout an image called ``name`` of these layers."""
        stored = self._document(config.document(layers), CONFIG)
        document = self._document(
            {"schemaVersion": 2, "mediaType": MANIFEST, "config": stored, "layers": layers},
            MANIFEST,
        )
        document["annotations"] = _annotations(name)
        index = {"schemaVersion": 2, "manifests": [document]}
        (self.folder / "index.json").write_text(json.dumps(index))
        (self.folder / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))

    def _partial(self) -> Path:
        return self.blobs / "partial"

    def _descriptor(self, written: _Hashing) -> Descriptor:
        digest = written.digest.hexdigest()
        self._partial().rename(self.blobs / digest)
        return {"mediaType": LAYER, "digest": f"sha256:{digest}", "size": written.length}

    def _document(self, document: Mapping[str, Any], media_type: str) -> Descriptor:
        data = json.dumps(document, sort_keys=True).encode()
        digest = hashlib.sha256(data).hexdigest()
        (self.blobs / digest).write_bytes(data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


def layers(layout: Path) -> list[Descriptor]:
    """Layers of the image in a layout, the lowest first."""
    found: list[Descriptor] = manifest(layout)["layers"]
    return found


def manifest(layout: Path) -> dict[str, Any]:
    """Manifest of the one image in a layout."""
    index = json.loads((layout / "index.json").read_text())
    found: dict[str, Any] = json.loads(blob(layout, index["manifests"][0]).read_text())
    return found


def tag(layout: Path) -> str:
    """Tag under which tools find the image in a layout."""
    index = json.loads((layout / "index.json").read_text())
    return str(index["manifests"][0]["annotations"][TAG_ANNOTATION])


def blob(layout: Path, descriptor: Descriptor) -> Path:
    """File of a blob."""
    return layout / "blobs" / "sha256" / str(descriptor["digest"]).removeprefix("sha256:")


def rename(layout: Path, name: str) -> None:
    """Give the image in a layout another name."""
    index = json.loads((layout / "index.json").read_text())
    index["manifests"] = index["manifests"][-1:]
    index["manifests"][0]["annotations"] = _annotations(name)
    (layout / "index.json").write_text(json.dumps(index))


def used_blobs(layout: Path) -> list[Path]:
    """Files of the image in a layout: its manifest, its configuration and its layers."""
    index = json.loads((layout / "index.json").read_text())
    document = manifest(layout)
    descriptors = [index["manifests"][0], document["config"], *document["layers"]]
    return list(dict.fromkeys(blob(layout, descriptor) for descriptor in descriptors))


def remove_unused(layout: Path) -> None:
    """Remove blobs that the image does not consist of."""
    kept = set(used_blobs(layout))
    for path in (layout / "blobs" / "sha256").iterdir():
        if path not in kept:
            path.unlink()


def write_tar(layout: Path, present: Collection[str], out: IO[bytes]) -> None:
    """Write a layout as ``ctr images import`` reads it, less the blobs that it has already.

    ``present`` holds digests (``sha256:...``) of containerd's content store.
    """
    with tarfile.open(fileobj=out, mode="w|", bufsize=_CHUNK) as tar:
        for part in ("oci-layout", "index.json"):
            tar.add(layout / part, part)
        for path in used_blobs(layout):
            if f"sha256:{path.name}" not in present:
                tar.add(path, f"blobs/sha256/{path.name}")


def _annotations(name: str) -> dict[str, str]:
    return {NAME_ANNOTATION: name, TAG_ANNOTATION: name.rpartition(":")[2]}


def _add_trees(tar: tarfile.TarFile, trees: Mapping[str, Path], left_out: tuple[str, ...]) -> None:
    known: set[str] = set()
    for destination, source in trees.items():
        name = destination.strip("/")
        for parent in reversed(Path(name).parents):
            _add_folder(tar, str(parent), known)
        _add(tar, source, name, left_out)


def _add_folder(tar: tarfile.TarFile, name: str, known: set[str]) -> None:
    if name == "." or name in known:
        return
    known.add(name)
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    tar.addfile(entry)


def _add(tar: tarfile.TarFile, source: Path, name: str, left_out: tuple[str, ...]) -> None:
    entry = tar.gettarinfo(source, name)
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    if entry.isreg():
        with source.open("rb") as data:
            tar.addfile(entry, data)
        return
    tar.addfile(entry)
    if entry.isdir():
        for child in sorted(path.name for path in source.iterdir()):
            path = f"{name}/{child}"
            if not any(fnmatch(path, pattern) for pattern in left_out):
                _add(tar, source / child, path, left_out)
