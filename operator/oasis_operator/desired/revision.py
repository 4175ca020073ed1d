"""The revision of an OasisDeployment: a hash of all that makes its engine pods what they are."""

from __future__ import annotations

import hashlib
import json
from typing import Any

DIGITS = 8


def content_hash(content: Any, digits: int = DIGITS) -> str:
    """The same for equal content, whatever the order of its keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:digits]
