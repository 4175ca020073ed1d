"""The page for who writes a second host of the core names what the core has, as it is called."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import oasis_runtime.core
from oasis_runtime import contract
from oasis_runtime.core.admission import Admission
from oasis_runtime.core.budget import Budget
from oasis_runtime.core.engine import SparseEngine, Step
from oasis_runtime.core.request_table import RequestTable
from oasis_runtime.core.requests import Selection
from oasis_runtime.core.statistics import Statistics
from oasis_runtime.kernels import contract as kernels
from oasis_runtime.kernels import cpu

PAGE = Path(__file__).parents[3] / "docs" / "adding-an-engine.md"
OBJECTS: Mapping[str, type] = {
    "engine": SparseEngine,
    "engine.requests": RequestTable,
    "engine.statistics": Statistics,
    "step": Step,
    "budget": Budget,
    "selection": Selection,
    "admission": Admission,
}
"""What the page calls its objects."""
ARRAY = re.compile(r" (?:u?int|float)\d+(?: \[[^]]*\])?")
"""Type and shape of an argument, which the page has in its calls."""


def names() -> dict[str, object]:
    """Modules of the core, and all that they and what they stand on have."""
    found: dict[str, object] = {"contract": contract, "oasis_runtime": oasis_runtime}
    core = [
        importlib.import_module(f"oasis_runtime.core.{module.name}")
        for module in pkgutil.iter_modules(oasis_runtime.core.__path__)
    ]
    for module in (*core, kernels, cpu, contract):
        found |= {name: value for name, value in vars(module).items() if name[0] != "_"}
    return {module.__name__.rpartition(".")[2]: module for module in core} | found


def written() -> str:
    """The page up to what other frameworks would call."""
    return PAGE.read_text().partition("\n## SGLang")[0]


def expressions() -> Iterator[ast.expr]:
    """Calls and dotted names in the page's code."""
    block = re.search(r"```python\n(.*?)```", written(), re.DOTALL)
    assert block is not None
    yield from (node for node in ast.walk(ast.parse(block[1])) if isinstance(node, ast.Call))
    for span in re.findall(r"`([^`\n]+)`", written().replace(block[0], "")):
        if re.match(r"[A-Za-z_]+[.(]", span) and "/" not in span:
            yield ast.parse(ARRAY.sub("", span), mode="eval").body


def resolved(node: ast.expr) -> Any:
    """What an expression of the page stands for: a class for an object of it."""
    text = ast.unparse(node)
    if text in OBJECTS:
        return OBJECTS[text]
    if isinstance(node, ast.Name):
        return names()[node.id]
    if isinstance(node, ast.Call):
        function = resolved(node.func)
        return function if inspect.isclass(function) else get_type_hints(function)["return"]
    assert isinstance(node, ast.Attribute), text
    owner = resolved(node.value)
    fields = getattr(owner, "__dataclass_fields__", {})
    return fields[node.attr] if node.attr in fields else getattr(owner, node.attr)


def bound(call: ast.Call) -> bool:
    """Whether the call fits its function; three dots stand for whatever arguments."""
    function, arguments = resolved(call.func), list(call.args)
    keywords = {word.arg: None for word in call.keywords if word.arg}
    signature = inspect.signature(function)
    if any(isinstance(a, ast.Constant) and a.value is ... for a in arguments):
        return keywords.keys() <= signature.parameters.keys()
    of = call.func.value if isinstance(call.func, ast.Attribute) else None
    method = of is not None and (ast.unparse(of) in OBJECTS or isinstance(of, ast.Call))
    try:
        signature.bind(*[None] * (method + len(arguments)), **keywords)
    except TypeError:
        return False
    return True


def test_the_page_names_what_there_is() -> None:
    found = [ast.unparse(node) for node in expressions() if resolved(node) is not None]
    assert {"step.sparse", "engine.end_step()", "Tables.elements"} <= set(found)


@pytest.mark.parametrize(
    "call", [e for e in expressions() if isinstance(e, ast.Call)], ids=ast.unparse
)
def test_a_call_of_the_page_is_one_of_the_core(call: ast.Call) -> None:
    assert bound(call)


def test_every_call_of_a_step_is_on_the_page() -> None:
    public = {n for n, f in vars(SparseEngine).items() if inspect.isfunction(f) and n[0] != "_"}
    assert {name for name in public if f"engine.{name}(" not in written()} == set()


@pytest.mark.parametrize(
    "wrong", ["engine.begin_step()", "engine.write(layer, key)", "SparseEngine(..., decodes2=1)"]
)
def test_a_wrong_call_is_found(wrong: str) -> None:
    call = ast.parse(wrong, mode="eval").body
    assert isinstance(call, ast.Call)
    assert not bound(call)
