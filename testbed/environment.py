"""The Python environment of tests, linters and test-bed images: one, keyed by its pins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from testbed import cache, progress, slimtorch, versions
from testbed.problem import Problem

REQUIREMENTS = Path(__file__).parent / "requirements"
FILES = ("runtime", "operator", "router", "dev")
INTERPRETER = Path(f"/usr/bin/python{versions.PYTHON}")
"""Debian's: the images have the same one at the same path, so the environment works in both."""
CHECKOUT = Path(__file__).resolve().parents[1]
DISTRIBUTION = "oasiskv"


def parse_pins(text: str) -> dict[str, str]:
    """Name to version in a requirements file of nothing but ``name==version`` and comments.

    Raises Problem that quotes any other line.
    """
    pins: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split("#")[0].strip()
        if not words:
            continue
        name, separator, version = words.partition("==")
        if not separator or not name or not version or " " in words:
            raise Problem(f"a pin must read name==version, not {line!r}")
        pins[name] = version
    return pins


def pins() -> dict[str, str]:
    """All pins together; raises Problem when two files disagree on one."""
    merged: dict[str, str] = {}
    for file in FILES:
        for name, version in parse_pins((REQUIREMENTS / f"{file}.txt").read_text()).items():
            if merged.setdefault(name, version) != version:
                raise Problem(
                    f"requirements/{file}.txt pins {name}=={version}, another file "
                    f"{merged[name]}; make them agree"
                )
    return merged


def key() -> str:
    """Changes with the pins and with how torch is made slim."""
    listing = "\n".join(f"{name}=={version}" for name, version in sorted(pins().items()))
    return cache.fingerprint(listing, versions.PYTHON, slimtorch.FORMAT)


def python(folder: Path) -> Path:
    """Interpreter of an environment."""
    return folder / "bin" / "python"


def site_packages(folder: Path) -> Path:
    """Where an environment's packages are."""
    return folder / "lib" / f"python{versions.PYTHON}" / "site-packages"


def make() -> Path:
    """Folder of the environment, made now when the cache has none with these pins."""
    return cache.entry("environments", "venv", key(), _install)


def made() -> Path | None:
    """Folder of the environment if it is there."""
    return cache.finished("environments", "venv", key())


def client() -> Path:
    """Interpreter of a small environment with the OpenAI client, for a cluster that is not ours."""
    pin = f"openai=={pins()['openai']}"

    def install(folder: Path) -> None:
        log = progress.log_file("client")
        with progress.step(f"Python environment with {pin}"):
            remedy = "Check that this Python has venv, and that pip reaches its package index."
            progress.run([sys.executable, "-m", "venv", folder], log, remedy=remedy)
            install = ["install", "-q", "--no-cache-dir", "--disable-pip-version-check", pin]
            progress.run([python(folder), "-m", "pip", *install], log, remedy=remedy)

    key = cache.fingerprint(pin, sys.executable, sys.version)
    return python(cache.entry("environments", "client", key, install))


def _install(folder: Path) -> None:
    if not INTERPRETER.exists():
        raise Problem(
            f"there is no {INTERPRETER}; Debian {versions.DEBIAN} brings it with the package "
            f"python{versions.PYTHON}"
        )
    log = progress.log_file("environment")
    listing = folder / "pins.txt"
    with progress.step("Python environment (3.6 GB: torch, vLLM, NIXL, test tools)"):
        progress.run([INTERPRETER, "-m", "venv", folder], log)
        listing.write_text("".join(f"{name}=={version}\n" for name, version in pins().items()))
        # --no-deps: some packages ask for torch, and with it for 4 GB of CUDA libraries.
        progress.run(
            [
                python(folder),
                "-m",
                "pip",
                "install",
                "-q",
                "--no-deps",
                "--no-compile",
                "--no-cache-dir",
                "--disable-pip-version-check",
                "-r",
                listing,
            ],
            log,
            remedy="Check that pip reaches its package index.",
        )
        slimtorch.slim(site_packages(folder))
        _compile(folder, log)


def _compile(folder: Path, log: Path) -> None:
    """Write bytecode that is valid at any path and time.

    Without it every pod that mounts the environment compiles it again: 49 s to Ready, not 28.
    The exit status says nothing: one package holds a template that is not valid Python.
    """
    command = [
        python(folder),
        "-m",
        "compileall",
        "-q",
        "-j2",
        "--invalidation-mode",
        "unchecked-hash",
        str(folder / "lib"),
    ]
    with log.open("ab") as output:
        subprocess.run(list(map(str, command)), stdout=output, stderr=output, check=False)


def linked_checkout(folder: Path) -> Path | None:
    """The checkout that the environment's editable install of this project points to."""
    for record in site_packages(folder).glob(f"{DISTRIBUTION}-*.dist-info/direct_url.json"):
        url = str(json.loads(record.read_text()).get("url", ""))
        return Path(url.removeprefix("file://"))
    return None


def link(folder: Path, checkout: Path = CHECKOUT) -> None:
    """Install this checkout into the environment in editable form.

    Brings the entry points, by which vLLM finds the plugin, and builds the native kernels. Done
    again when what the build reads has changed.
    """
    with cache.locked(folder.with_name(f".{DISTRIBUTION}.lock")):
        _link(folder, checkout)


def _link(folder: Path, checkout: Path) -> None:
    stamp = folder / "linked"
    built_from = [path for path in native_sources(checkout) if path.exists()]
    wanted = f"{checkout} {cache.fingerprint(*built_from)}"
    if stamp.exists() and stamp.read_text() == wanted and linked_checkout(folder) == checkout:
        return
    log = progress.log_file("editable-install")
    with progress.step("editable install of this checkout"):
        progress.run(
            [
                python(folder),
                "-m",
                "pip",
                "install",
                "-q",
                "--no-deps",
                "--no-build-isolation",
                "--disable-pip-version-check",
                "-e",
                checkout,
            ],
            log,
            env={**os.environ, "PIP_NO_INDEX": "1"},
        )
    stamp.write_text(wanted)


def native_sources(checkout: Path) -> list[Path]:
    """What an editable install depends on; Python files are read where they lie."""
    kernels = sorted((checkout / "runtime").rglob("*.cpp")) + sorted(
        (checkout / "runtime").rglob("*.h")
    )
    return [checkout / "pyproject.toml", checkout / "setup.py", *kernels]


def wheels(requirement: str) -> Path:
    """Folder with the wheels of one requirements file, for image builds without a network.

    setuptools is among them, as the project's own wheel is built from them too.
    """
    chosen = parse_pins((REQUIREMENTS / f"{requirement}.txt").read_text())
    chosen["setuptools"] = pins()["setuptools"]
    listing = "".join(f"{name}=={version}\n" for name, version in sorted(chosen.items()))

    def download(folder: Path) -> None:
        (folder / "pins.txt").write_text(listing)
        log = progress.log_file(f"wheels-{requirement}")
        with progress.step(f"wheels of the {requirement} image"):
            progress.run(
                [
                    python(make()),
                    "-m",
                    "pip",
                    "wheel",
                    "-q",
                    "--no-deps",
                    "--no-cache-dir",
                    "--disable-pip-version-check",
                    "-w",
                    folder,
                    "-r",
                    folder / "pins.txt",
                ],
                log,
                remedy="Check that pip reaches its package index.",
            )

    return cache.entry("wheels", requirement, cache.fingerprint(listing), download)
