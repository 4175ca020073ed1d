"""Fields that messages name are fields that there are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import oasis_operator
from oasis_operator.api.spec import Spec
from oasis_operator.api.structural import structural

OASIS_ROLE = {"role_crd.py", "scale_target.py"}
"""Files about the spec of another kind."""
SCHEMA = structural(Spec.model_json_schema(by_alias=True))
FOLDER = Path(oasis_operator.__file__).parent
NAMED = re.compile(r"\bspec((?:\.[a-z]\w*)+)")


def named_fields() -> Iterator[tuple[str, str]]:
    """Every ``spec.`` path in a string of the operator of the OasisDeployment, with its file."""
    for file in sorted(FOLDER.rglob("*.py")):
        if file.name in OASIS_ROLE:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for found in NAMED.finditer(node.value):
                    yield file.name, found.group(1)


def exists(path: str) -> bool:
    found: Any = SCHEMA
    for step in path.removeprefix(".").split("."):
        found = found.get("properties", {}).get(step)
        if found is None:
            return False
    return True


FIELDS = sorted(set(named_fields()))


def test_messages_name_fields() -> None:
    assert len(FIELDS) > 10
    assert not exists(".autoscaling.slo.ttftSeconds")


@pytest.mark.parametrize(("file", "path"), FIELDS)
def test_a_field_that_a_message_names_is_in_the_schema(file: str, path: str) -> None:
    assert exists(path), f"{file} names spec{path}"
