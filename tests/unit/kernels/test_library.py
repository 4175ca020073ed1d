"""The compiled library is only called as it was built to be."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from oasis_runtime.core.geometry import Geometry
from oasis_runtime.kernels import cpu
from tests.unit.kernels.states import State, empty


def smallest() -> State:
    g = Geometry(1, 1, 1, 64, 16, 2, host_blocks=1, slots=1)
    return empty(g, np.zeros((1, 1, 1, g.page_bytes), np.uint8), 1)


@pytest.mark.parametrize("source", ["", "int oasis_interface(void) { return 1; }"])
def test_a_library_of_another_version_is_refused(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "old.so"
    subprocess.run(
        ["cc", "-shared", "-x", "c", "-", "-o", old], input=source, text=True, check=True
    )
    monkeypatch.setattr(cpu, "library_path", lambda: old)
    with pytest.raises(RuntimeError, match=r"old\.so was built from another version: install"):
        cpu.CpuKernels(smallest().tables)


def test_arrays_of_another_type_are_refused() -> None:
    with pytest.raises(TypeError, match="int32"):
        cpu.CpuKernels(smallest().tables).drop(np.zeros(1, np.int64))
