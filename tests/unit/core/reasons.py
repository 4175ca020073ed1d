"""What the engine gives as reasons, read from its code."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from oasis_runtime.core import engine


def fallback_reasons() -> set[str]:
    """Why a request can be dense: the words that the engine returns."""
    source = ast.parse(Path(inspect.getfile(engine)).read_text())
    return {
        value.value
        for function in ast.walk(source)
        if isinstance(function, ast.FunctionDef) and function.name == "_dense_reason"
        for returned in ast.walk(function)
        if isinstance(returned, ast.Return) and returned.value is not None
        for value in ast.walk(returned.value)
        if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value
    }
