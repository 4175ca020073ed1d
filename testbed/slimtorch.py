"""Make PyPI's torch import without nvidia's packages, for test machines that have no GPU.

PyPI has only the CUDA build of torch. Its shared objects link to libraries from some 4 GB of
``nvidia-*`` packages, which a process on the CPU loads but never calls. Here each of them is
replaced by a stand-in: a shared object with the right name, the right symbols and the right
symbol versions, whose functions return ``cudaErrorNoDevice``. torch's own CUDA libraries (0.5 GB)
are replaced in the same way. It holds for the version of torch that ``testbed/requirements`` pins,
and is never for an image that is shipped.

A stand-in has to be more than a list of names, because some of them are used while torch loads:
a function that returns a reference to a cache that is written to, constructors that leave a
vtable, type information that pybind11 reads, and error texts.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

SYSTEM = re.compile(r"^(lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|gomp|util)\.so|ld-linux)")
"""Libraries that every machine has."""

TORCH_CUDA = "libtorch_cuda.so"
TORCH_CUDA_PARTS = (
    TORCH_CUDA,
    "libtorch_cuda_linalg.so",
    "libtorch_nvshmem.so",
    "libcaffe2_nvrtc.so",
)
"""torch's own libraries that only a GPU needs; the first one stands in for all."""

UNVERSIONED = {
    "cudnn": "libcudnn.so.9",
    "nccl": "libnccl.so.2",
    "cuFile": "libcufile.so.0",
    "cusparseLt": "libcusparseLt.so.0",
}
"""Libraries that give their symbols no version, by what the symbols begin with."""

CUDA_ERROR_NO_DEVICE = 100
FORMAT = "1"
"""Part of an environment's cache key; raise it when stand-ins come out different."""
_CLASS_TYPE_INFO = "_ZTVN10__cxxabiv117__class_type_infoE"


@dataclass(frozen=True)
class Symbol:
    """A dynamic symbol; ``version`` is empty for one without."""

    name: str
    version: str
    undefined: bool


@dataclass
class StandIn:
    """One library to write."""

    soname: str
    result: int
    version: str = ""
    symbols: set[str] = field(default_factory=set)

    def assembly(self) -> str:
        """x86-64 source. Every function is an alias of one of four bodies."""
        has_types = any(name.startswith("_ZTI") for name in self.symbols)
        vtable = f"{_CLASS_TYPE_INFO}+16" if has_types else "0"
        functions: list[str] = []
        objects: list[str] = []
        for name in sorted(self.symbols):
            if name.startswith("_ZTI"):
                text = (
                    f'.quad {_CLASS_TYPE_INFO}+16, 1f\n.size "{name}", 16\n1: .asciz "{name[4:]}"'
                )
                objects.append(_object(name, text))
            elif name.startswith("_ZTV"):
                objects.append(_object(name, f'.fill 64, 8, 0\n.size "{name}", 512'))
            else:
                functions.append(_alias(name, body_of(name)))
        return (
            "\n".join(
                [
                    _BODIES.format(result=self.result),
                    *functions,
                    _DATA.format(vtable=vtable),
                    *objects,
                ]
            )
            + '\n.section .note.GNU-stack,"",@progbits\n'
        )

    def version_script(self) -> str:
        """Linker script that gives all symbols the library's version."""
        return f"{self.version} {{ global: *; }};\n".lstrip()


_BODIES = """\
.text
standin_result:
    movl ${result}, %eax
    ret
standin_reference:
    leaq standin_buffer(%rip), %rax
    ret
standin_text:
    leaq standin_message(%rip), %rax
    ret
standin_constructor:
    leaq standin_vtable+16(%rip), %rax
    movq %rax, (%rdi)
    ret"""

_DATA = """\
.data
standin_message: .asciz "this torch has no CUDA"
.balign 16
standin_buffer: .fill 512, 8, 0
standin_name: .asciz "7standin"
.balign 16
standin_type: .quad {vtable}, standin_name
standin_vtable: .quad 0, standin_type
.rept 64
.quad standin_result
.endr"""


def body_of(name: str) -> str:
    """Which of the bodies a function of this (mangled) name gets."""
    if "get_gil_checker" in name:
        return "standin_reference"
    if "GetErrorString" in name or "GetErrorName" in name:
        return "standin_text"
    if re.search(r"C[12]E", name):
        return "standin_constructor"
    return "standin_result"


def _alias(name: str, body: str) -> str:
    return f'.globl "{name}"\n.type "{name}", @function\n.set "{name}", {body}'


def _object(name: str, text: str) -> str:
    return f'.balign 16\n.globl "{name}"\n.type "{name}", @object\n"{name}":\n{text}'


def parse_needed(listing: str) -> list[str]:
    """Sonames in ``readelf -d``."""
    return re.findall(r"NEEDED.*\[(.+?)\]", listing)


def parse_symbols(listing: str) -> list[Symbol]:
    """Global symbols in ``readelf --dyn-syms -W``."""
    found = []
    for line in listing.splitlines():
        columns = line.split()
        if len(columns) < 8 or not columns[0].endswith(":"):
            continue
        if columns[4] not in {"GLOBAL", "WEAK", "UNIQUE"}:
            continue
        name, _, version = columns[7].partition("@")
        found.append(Symbol(name, version.lstrip("@"), columns[6] == "UND"))
    return found


def parse_versions(listing: str) -> dict[str, str]:
    """Which library each symbol version is wanted from, in ``readelf -V``.

    The name of a version is the publisher's choice and need not resemble the soname.
    """
    found: dict[str, str] = {}
    library = ""
    for line in listing.splitlines():
        if file := re.search(r"File: (\S+)", line):
            library = file[1]
        elif library and (name := re.search(r"Name: (\S+)", line)):
            found[name[1]] = library
    return found


def _output(*command: str | Path) -> str:
    done = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)
    return done.stdout


@cache
def _needed(library: Path) -> list[str]:
    return parse_needed(_output("readelf", "-dW", library))


@cache
def _symbols(library: Path) -> list[Symbol]:
    return parse_symbols(_output("readelf", "--dyn-syms", "-W", library))


@cache
def _versions(library: Path) -> dict[str, str]:
    return parse_versions(_output("readelf", "-VW", library))


def _names(libraries: Iterable[Path], *, undefined: bool) -> set[str]:
    return {
        symbol.name
        for library in libraries
        for symbol in _symbols(library)
        if symbol.undefined == undefined
    }


def replace_torch_cuda(folder: Path) -> None:
    """Replace torch's own CUDA libraries by one with the symbols that the others want."""
    parts = [folder / name for name in TORCH_CUDA_PARTS]
    rest = [library for library in _shared_objects(folder) if library not in parts]
    only_there = _names(parts, undefined=False) - _names(rest, undefined=False)
    wanted = _names(rest, undefined=True) & only_there
    for part in parts:
        part.unlink()
    _write(folder, StandIn(TORCH_CUDA, result=0, symbols=wanted))


def replace_missing(folder: Path) -> list[str]:
    """Write a stand-in for every library that is linked to and not there; returns their names."""
    libraries = [library for library in _shared_objects(folder) if library.name != TORCH_CUDA]
    standins = {
        soname: StandIn(soname, result=CUDA_ERROR_NO_DEVICE)
        for library in libraries
        for soname in _needed(library)
        if not SYSTEM.match(soname) and not (folder / soname).exists()
    }
    for library in libraries:
        for symbol in _symbols(library):
            soname = origin(symbol, _versions(library)) if symbol.undefined else None
            if soname is None or soname not in standins:
                continue
            standins[soname].symbols.add(symbol.name)
            if symbol.version:
                standins[soname].version = symbol.version
    for standin in standins.values():
        _write(folder, standin)
    return sorted(standins)


def origin(symbol: Symbol, versions: dict[str, str]) -> str | None:
    """Soname of the library that a symbol is wanted from, None when nothing tells."""
    if symbol.version:
        return versions.get(symbol.version)
    for prefix, soname in UNVERSIONED.items():
        if symbol.name.startswith(prefix):
            return soname
    return None


def _shared_objects(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.so*") if not path.is_symlink())


def _write(folder: Path, standin: StandIn) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        source, script = Path(scratch, "standin.s"), Path(scratch, "versions")
        source.write_text(standin.assembly())
        script.write_text(standin.version_script())
        _output(
            "gcc",
            "-shared",
            "-nostdlib",
            f"-Wl,-soname,{standin.soname}",
            f"-Wl,--version-script={script}",
            "-o",
            folder / standin.soname,
            source,
        )


def slim(site_packages: Path) -> list[str]:
    """Do all of it to an installed torch; returns the sonames that got a stand-in."""
    folder = site_packages / "torch" / "lib"
    replace_torch_cuda(folder)
    return replace_missing(folder)
