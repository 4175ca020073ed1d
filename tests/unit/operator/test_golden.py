from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.operator.golden import EXAMPLES, golden_file, manifests


def test_there_are_examples() -> None:
    assert {path.name for path in EXAMPLES} >= {"demo.yaml", "single.yaml", "gpu.yaml"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_operator_of_this_version_changes_no_pod_of_an_example(path: Path) -> None:
    assert manifests(path) == golden_file(path).read_text(), (
        "manifests changed, and with them every running pod; if that is meant, run "
        "`python -m tests.unit.operator.golden`"
    )
