"""``engine.yaml``, the environment and ``--set`` into one :class:`EngineConfig`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from oasis_runtime.contract import NODE_LEADER_VARIABLE, NODE_RANK_VARIABLE, EngineConfig
from oasis_runtime.serve.refusal import RefusalError
from oasis_runtime.serve.sentences import Location, dotted, sentence, shown_name
from oasis_runtime.serve.settings_text import TextError, compose, value_of

_MAX_BYTES = 256 << 10
"""A configuration has some hundred bytes."""

VARIABLES = {
    "OASIS_TRANSFER_HOST": ("transfer", "host"),
    NODE_RANK_VARIABLE: ("nodes", "rank"),
    NODE_LEADER_VARIABLE: ("nodes", "leader"),
}
"""What a pod knows only when it runs: a variable, and the setting that it overrides."""


@dataclass(frozen=True)
class Override:
    """One value that does not come from the file."""

    path: tuple[str, ...]
    value: object
    source: str
    """What to name in a sentence about the value (``--set``, a variable)."""


def parse_override(text: str) -> Override:
    """``key.path=value`` of ``--set``; the value is YAML, so numbers and lists work.

    Raises:
        RefusalError: there is no ``=``, an empty key, or the value is not YAML.
    """
    key, separator, raw = text.partition("=")
    path = tuple(key.split("."))
    if not separator or not all(path):
        raise RefusalError(
            [
                f"--set {shown_name(text)}: write it as key.path=value, for example "
                "tiers.block_tokens=32"
            ]
        )
    try:
        value = value_of(compose(raw))
    except TextError:
        raise RefusalError(
            [f"--set {shown_name(text)}: the value is not YAML; put it in quotes"]
        ) from None
    return Override(path, value, f"--set {shown_name(key)}")


def load_config(
    file: Path | None, overrides: Sequence[Override], environment: Mapping[str, str]
) -> EngineConfig:
    """Read the file (if there is one), then the environment, then the overrides.

    Raises:
        RefusalError: with one sentence for every problem found.
    """
    document = _Document.read(file) if file is not None else _Document("the command line", {}, None)
    of_the_pod = [
        Override(path, environment[name], f"the variable {name}")
        for name, path in VARIABLES.items()
        if environment.get(name)
    ]
    overrides = [*of_the_pod, *overrides]
    values = document.values
    for override in overrides:
        values = _assigned(values, override)
    if file is None and "model" not in values:
        raise RefusalError(["no model given; pass --model DIR, or a file with --config FILE"])
    try:
        return EngineConfig.model_validate(values)
    except ValidationError as invalid:
        raise RefusalError(
            [
                f"{_where(error['loc'], document, overrides)}: {sentence(error, EngineConfig)}"
                for error in invalid.errors()
            ]
        ) from None


def _assigned(values: dict[str, Any], override: Override) -> dict[str, Any]:
    """``values`` with one more value; the input is left as it is."""
    result = dict(values)
    section = result
    for depth, part in enumerate(override.path[:-1], start=1):
        inner = section.get(part)
        if inner is None:
            inner = {}
        if not isinstance(inner, dict):
            name = dotted(override.path[:depth])
            raise RefusalError([f"{override.source}: {name} is a single value, not a section"])
        section[part] = dict(inner)
        section = section[part]
    section[override.path[-1]] = override.value
    return result


def _where(location: Location, document: _Document, overrides: Sequence[Override]) -> str:
    for override in reversed(overrides):
        shared = min(len(location), len(override.path))
        if location[:shared] == override.path[:shared]:
            return override.source
    line = document.line_of(location)
    return document.name if line is None else f"{document.name} line {line}"


@dataclass(frozen=True)
class _Document:
    """The file's content with its source positions."""

    name: str
    values: dict[str, Any]
    root: yaml.MappingNode | None

    @classmethod
    def read(cls, file: Path) -> _Document:
        try:
            with file.open("rb") as content:
                raw = content.read(_MAX_BYTES + 1)
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise RefusalError([f"{file} is not UTF-8 text; write it as YAML"]) from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise RefusalError(
                [f"cannot read the configuration {file}: {reason}; check --config and the mount"]
            ) from None
        if len(raw) > _MAX_BYTES:
            raise RefusalError(
                [f"{file} has more than {_MAX_BYTES >> 10} KiB; check that it is the configuration"]
            )
        try:
            root = compose(text)
            values = value_of(root)
        except TextError as error:
            where = str(file) if error.line is None else f"{file} line {error.line}:"
            raise RefusalError([f"{where} {error.problem}"]) from None
        if not isinstance(values, dict) or not isinstance(root, yaml.MappingNode):
            found = "empty" if values is None else f"a {type(values).__name__}"
            raise RefusalError(
                [f"{file} must be a mapping of settings, such as 'model: /models/x'; it is {found}"]
            )
        return cls(str(file), values, root)

    def line_of(self, location: Location) -> int | None:
        """Line of the innermost key or item on the way to ``location`` that the file has."""
        node: yaml.Node | None = self.root
        line = None
        for part in location:
            found: yaml.Node | None = None
            if isinstance(node, yaml.MappingNode):
                for key, value in node.value:
                    if key.value == str(part):
                        found, line = value, key.start_mark.line + 1
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
                found = node.value[part]
                line = found.start_mark.line + 1
            if found is None:
                break
            node = found
        return line
