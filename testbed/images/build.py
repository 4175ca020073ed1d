"""The project's images, built from this checkout for the node bed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from testbed import cache, environment, versions
from testbed.images import buildah, debian, engine, oci
from testbed.problem import Problem

NAMES = ("operator", "router", "runtime")
_SOURCES = ("pyproject.toml", "README.md", "LICENSE", "operator", "runtime")
_CODE = (".py", ".cpp", ".h", ".toml", ".md", ".typed", ".yaml")


@dataclass(frozen=True)
class Image:
    """A built image: its name in containerd, and its layout."""

    name: str
    layout: Path


def sources(checkout: Path, names: Iterable[str] = _SOURCES) -> list[Path]:
    """Files of the checkout that go into the project's own wheel, in a fixed order."""
    found: list[Path] = []
    for name in names:
        path = checkout / name
        if path.is_dir():
            found += sorted(file for file in path.rglob("*") if file.suffix in _CODE)
        elif path.exists():
            found.append(path)
    return found


def key(name: str, checkout: Path) -> str:
    """Changes with what the image is made of."""
    folder = checkout / "images" / name
    files = sorted(path for path in folder.iterdir() if path.is_file())
    if name != "router":
        files += sources(checkout)
    relative = "\n".join(str(path.relative_to(checkout)) for path in files)
    bases = [debian.key(debian.RUN_PACKAGES), environment.key() if name == "runtime" else ""]
    return cache.fingerprint(relative, *bases, *files)


def build(name: str, checkout: Path = environment.CHECKOUT) -> Image:
    """Build one image, or take it from the cache; raises Problem for a name that has none."""
    if name not in NAMES:
        raise Problem(f"there is no image {name!r}; the images are {', '.join(NAMES)}")
    tag = key(name, checkout)
    full_name = f"localhost/oasiskv/{name}:{tag}"

    def make(folder: Path) -> None:
        wanted = _recipe(name, checkout)
        # The layers of the base under their own digests: buildah then does not write them again.
        for layout in wanted.bases.values():
            _link_blobs(layout, folder)
        buildah.build(wanted, folder)
        oci.rename(folder, full_name)
        oci.remove_unused(folder)

    return Image(full_name, cache.entry("images", name, tag, make))


def _recipe(name: str, checkout: Path) -> buildah.Build:
    if name == "runtime":
        bases = {"BUILDER": debian.builder(), "BASE": engine.base()}
        arguments = {"VLLM_VERSION": versions.VLLM, "NIXL_VERSION": versions.NIXL}
    else:
        bases = {"BUILDER": debian.builder(), "BASE": debian.python()}
        arguments = {"ROUTER_VERSION": versions.VLLM_ROUTER} if name == "router" else {}
    return buildah.Build(
        name=name,
        containerfile=checkout / "images" / name / "Containerfile",
        context=checkout,
        arguments=arguments,
        bases=bases,
        # The runtime's own wheel needs of these only what builds it.
        wheels=environment.wheels("operator" if name == "runtime" else name),
    )


def _link_blobs(layout: Path, target: Path) -> None:
    blobs = target / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)
    for descriptor in oci.layers(layout):
        source = oci.blob(layout, descriptor)
        if not (blobs / source.name).exists():
            os.link(source, blobs / source.name)
