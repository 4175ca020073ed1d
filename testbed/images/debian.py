"""Base images made from Debian's packages."""

from __future__ import annotations

from pathlib import Path

from testbed import cache, progress, versions
from testbed.images import oci

PATH = "/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
RUN_PACKAGES = (f"python{versions.PYTHON}", "python3", "ca-certificates", "libgomp1", "libnuma1")
BUILD_PACKAGES = (*RUN_PACKAGES, "python3-venv", "python3-dev", "g++")
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")


def arguments(packages: tuple[str, ...], archive: Path) -> list[str]:
    """mmdebstrap's command line for a root file system with these packages."""
    excludes = [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
    return [
        "mmdebstrap",
        "--quiet",
        "--variant=minbase",
        f"--include={','.join(packages)}",
        *excludes,
        versions.DEBIAN,
        str(archive),
    ]


def python() -> Path:
    """Image layout with Python only: what the images run on."""
    return _image("python", RUN_PACKAGES)


def builder() -> Path:
    """Image layout with Python and a compiler: what the builder stages run on."""
    return _image("python-build", BUILD_PACKAGES)


def _image(name: str, packages: tuple[str, ...]) -> Path:
    def make(folder: Path) -> None:
        archive = folder / "rootfs.tar"
        log = progress.log_file(f"image-{name}")
        with progress.step(f"base image {name} from Debian {versions.DEBIAN}"):
            progress.run(arguments(packages, archive), log, remedy="Check that apt works here.")
            image = oci.Layout(folder)
            layer = image.layer_from_tar(archive)
            config = oci.ImageConfig(environment={"PATH": PATH})
            image.write_index(local_name(name), [layer], config)
            archive.unlink()

    return cache.entry("images", name, key(packages), make)


def key(packages: tuple[str, ...]) -> str:
    """Changes with what is in the image and with how layouts are written."""
    return cache.fingerprint(" ".join(arguments(packages, Path("rootfs"))), oci.FORMAT)


def local_name(name: str) -> str:
    """Name of an image that exists on this machine only."""
    return f"localhost/oasiskv/{name}:testbed"
