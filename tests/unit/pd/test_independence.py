from __future__ import annotations

import subprocess
import sys


def test_the_transfer_imports_neither_torch_nor_vllm_nor_the_engine() -> None:
    code = (
        "import sys; sys.path[:0] = ['runtime']\n"
        "import oasis_runtime.pd.exporter, oasis_runtime.pd.importer\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('torch', 'vllm')\n"
        "       or m.startswith(('oasis_runtime.core', 'oasis_runtime.vllm'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
