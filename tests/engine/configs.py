"""The configuration that the engines of these tests have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oasis_runtime.contract import EngineConfig, LinkConfig

CONTEXT = 8192
BLOCK = 32
PAGES_A_BLOCK = 90
"""30 layers of 3 KV heads, of SmolLM2-135M."""
PAGE_BYTES = 2 * BLOCK * 64 * 4


def engine_config(model: Path, **settings: Any) -> EngineConfig:
    """Four requests at once, in float32, whatever the links of the machine are."""
    common = {
        "model": str(model),
        "dtype": "float32",
        "max_model_len": CONTEXT,
        "max_num_seqs": 4,
        "links": LinkConfig(force=True),
    }
    return EngineConfig.model_validate(common | settings)
