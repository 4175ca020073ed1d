"""The Triton programs, which other tests only interpret, are programs of a GPU too."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from pathlib import Path

from oasis_runtime.kernels import triton_programs


def programs() -> list[str]:
    """Those that are launched: what they call from within returns something."""
    source = ast.parse(Path(inspect.getfile(triton_programs)).read_text())
    return [
        f.name
        for f in source.body
        if isinstance(f, ast.FunctionDef) and ast.unparse(f.returns or ast.Constant(0)) == "None"
    ]


def test_every_program_compiles_for_a_gpu(tmp_path: Path) -> None:
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.kernels.compile_programs"],
        cwd=Path(__file__).parents[3],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == programs()
