from __future__ import annotations

import pytest

from tests.unit.operator.golden import FOLDER, golden_files

GOLDEN = golden_files()


def test_there_are_examples() -> None:
    assert set(GOLDEN) >= {"demo.yaml", "single.yaml", "gpu.yaml", "gpu-claimed.yaml"}


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_an_operator_of_this_version_changes_no_pod_of_an_example(name: str) -> None:
    assert GOLDEN[name] == (FOLDER / name).read_text(), (
        "manifests changed, and with them every running pod; if that is meant, run "
        "`python -m tests.unit.operator.golden`"
    )
