"""Stand-ins for CUDA libraries: what readelf says is read, and what is written links."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from testbed import slimtorch
from testbed.slimtorch import StandIn, Symbol

SYMBOLS = """\
Symbol table '.dynsym' contains 3 entries:
   Num:    Value          Size Type    Bind   Vis      Ndx Name
     0: 0000000000000000     0 NOTYPE  LOCAL  DEFAULT  UND
     1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND cudaMalloc@libcudart.so.13 (4)
     2: 0000000000001000    16 FUNC    WEAK   DEFAULT   12 here@@VERS_1
     3: 0000000000001000    16 FUNC    LOCAL  DEFAULT   12 hidden
"""


def test_symbols_are_read_with_version_and_direction() -> None:
    assert slimtorch.parse_symbols(SYMBOLS) == [
        Symbol("cudaMalloc", "libcudart.so.13", True),
        Symbol("here", "VERS_1", False),
    ]


def test_needed_libraries_are_read() -> None:
    line = " 0x0000000000000001 (NEEDED)   Shared library: [libcudart.so.13]\n"
    assert slimtorch.parse_needed(line) == ["libcudart.so.13"]


def test_a_version_belongs_to_the_file_above_it() -> None:
    listing = (
        "  000000: Version: 1  File: libnvshmem_host.so.3  Cnt: 1\n"
        "  0x0010:   Name: NVSHMEM  Flags: none  Version: 10\n"
    )
    assert slimtorch.parse_versions(listing) == {"NVSHMEM": "libnvshmem_host.so.3"}


@pytest.mark.parametrize(
    ("symbol", "soname"),
    [
        (Symbol("nvshmemx_mc_ptr", "NVSHMEM", True), "libnvshmem_host.so.3"),
        (Symbol("cudnnCreate", "", True), "libcudnn.so.9"),
        (Symbol("malloc", "", True), None),
    ],
)
def test_a_symbol_comes_from_its_version_or_else_its_prefix(
    symbol: Symbol, soname: str | None
) -> None:
    assert slimtorch.origin(symbol, {"NVSHMEM": "libnvshmem_host.so.3"}) == soname


def test_a_stand_in_links_and_its_functions_answer(tmp_path: Path) -> None:
    standin = StandIn("libx.so.1", 100, "X_1", {"cudaThing", "cudaGetErrorString", "_ZTI3Foo"})
    (tmp_path / "s.s").write_text(standin.assembly())
    (tmp_path / "v").write_text(standin.version_script())
    library = tmp_path / standin.soname
    link = ["gcc", "-shared", f"-Wl,--version-script={tmp_path / 'v'}", "-o", str(library)]
    subprocess.run([*link, str(tmp_path / "s.s"), "-lstdc++"], check=True)
    loaded = ctypes.CDLL(str(library))
    assert loaded.cudaThing() == 100
    loaded.cudaGetErrorString.restype = ctypes.c_char_p
    assert loaded.cudaGetErrorString() == b"this torch has no CUDA"
