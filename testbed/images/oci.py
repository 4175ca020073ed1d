"""OCI image layouts written without a container tool.

A layout is a folder with ``index.json`` and content-addressed blobs (OCI image specification,
image-layout.md). Layers are plain tar: compressing gigabytes that never leave the machine would
cost more time than it saves disk.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

LAYER = "application/vnd.oci.image.layer.v1.tar"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
NAME_ANNOTATION = "io.containerd.image.name"
TAG_ANNOTATION = "org.opencontainers.image.ref.name"
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

    def __init__(self, target: BinaryIO) -> None:
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

    def layer_from_trees(self, trees: Mapping[str, Path]) -> Descriptor:
        """A layer with each file or folder at its absolute destination.

        Owners and times are left out and the order is fixed: equal content, equal digest.
        """
        with self._partial().open("wb", buffering=_CHUNK) as raw:
            out = _Hashing(raw)
            with tarfile.open(
                fileobj=out, mode="w|", format=tarfile.PAX_FORMAT, bufsize=_CHUNK
            ) as tar:
                _add_trees(tar, trees)
        return self._descriptor(out)

    def write_index(self, name: str, layers: list[Descriptor], config: ImageConfig) -> None:
        """Make the layout an image called ``name`` of these layers."""
        stored = self._document(config.document(layers), CONFIG)
        manifest = self._document(
            {"schemaVersion": 2, "mediaType": MANIFEST, "config": stored, "layers": layers},
            MANIFEST,
        )
        manifest["annotations"] = {
            NAME_ANNOTATION: name,
            TAG_ANNOTATION: name.rpartition(":")[2],
        }
        index = {"schemaVersion": 2, "manifests": [manifest]}
        (self.folder / "index.json").write_text(json.dumps(index))
        (self.folder / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))

    def write_archive(self, archive: Path) -> None:
        """The layout as one tar, as ``ctr images import`` takes it."""
        with tarfile.open(archive, "w", bufsize=_CHUNK) as tar:
            for part in ("oci-layout", "index.json", "blobs"):
                tar.add(self.folder / part, part)

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


def _add_trees(tar: tarfile.TarFile, trees: Mapping[str, Path]) -> None:
    known: set[str] = set()
    for destination, source in trees.items():
        name = destination.strip("/")
        for parent in reversed(Path(name).parents):
            _add_folder(tar, str(parent), known)
        _add(tar, source, name)


def _add_folder(tar: tarfile.TarFile, name: str, known: set[str]) -> None:
    if name == "." or name in known:
        return
    known.add(name)
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    tar.addfile(entry)


def _add(tar: tarfile.TarFile, source: Path, name: str) -> None:
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
        for child in sorted(os.listdir(source)):
            _add(tar, source / child, f"{name}/{child}")
