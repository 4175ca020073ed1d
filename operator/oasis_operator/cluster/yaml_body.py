"""JSON that a YAML parser reads as the same: what server-side apply is sent."""

from __future__ import annotations

import json
import re
from typing import Any

_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""What YAML wants escaped (1.2, production 1 c-printable) and what 1.1 takes for a line's end."""


def yaml_body(body: Any) -> bytes:
    """JSON in UTF-8 without escaped surrogates: YAML has no pairs of them, so an emoji that is
    escaped as JSON does it is refused."""
    text = json.dumps(body, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()
