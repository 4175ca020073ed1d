"""Unpack a quantised GGUF model to a Hugging Face folder in bf16.

Run by the interpreter of the test environment (it needs torch, transformers and gguf), not as
part of the stdlib-only package: ``python convert_gguf.py FILE.gguf TARGET_FOLDER``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def convert(source: Path, target: Path) -> None:
    """Write config, weights, tokenizer and chat template of ``source`` into ``target``."""
    folder, name = str(source.parent), source.name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    # Without dequantize=True transformers keeps the packed tensors and cannot save them.
    model: Any = AutoModelForCausalLM.from_pretrained(
        folder,
        gguf_file=name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    # What is left of the quantiser would make save_pretrained() write a quantised config.
    model.is_quantized = False
    model.hf_quantizer = None
    vars(model.config).pop("quantization_config", None)
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
