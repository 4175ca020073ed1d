"""The command line that benchmarks of a model share."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """With ``--model``, a folder, of which OASISKV_MODEL is the default. ``doc``: the script's."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0] if doc else None)
    parser.add_argument("--model", type=Path, default=os.environ.get("OASISKV_MODEL"))
    return parser


def parsed(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None
) -> argparse.Namespace:
    """``arguments``: ``None`` for those of the process, which ends where no model is named."""
    options = parser.parse_args(arguments)
    if options.model is None:
        parser.error("no model given; pass --model FOLDER or set OASISKV_MODEL")
    return options
