from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_operator_loads_no_part_of_the_runtime_but_the_contract() -> None:
    program = (
        "import sys, oasis_operator.main\n"
        "print(*[m for m in sys.modules if m.split('.')[0] in "
        "('torch', 'vllm', 'nixl', 'numpy') or m.startswith('oasis_runtime.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": "operator:runtime"},
    )
    assert done.stdout.split() == ["oasis_runtime.contract"]
