"""What pydantic found wrong, as sentences."""

from __future__ import annotations

from pydantic import ValidationError


def problems_of(error: ValidationError, within: str = "") -> str:
    """One sentence for each field, with its path; ``within``: what goes before the paths."""
    return "; ".join(
        f"{within}{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()
    )
