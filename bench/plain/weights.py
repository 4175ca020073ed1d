"""Llama weights from a model folder in the form of Hugging Face."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from bench.plain.llama import Llama, Shape


def load(folder: Path, dtype: torch.dtype = torch.float32) -> Llama:
    """The model. Raises ValueError when the folder holds another kind."""
    return Llama(*parts(folder, dtype))


def parts(folder: Path, dtype: torch.dtype) -> tuple[Shape, dict[str, torch.Tensor]]:
    """Raises ValueError when the folder holds another kind of model."""
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] != "llama":
        raise ValueError(f"{folder} holds a {config['model_type']}, this can only run a llama")
    shape = Shape(
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        dim=config["head_dim"],
        hidden=config["hidden_size"],
        inner=config["intermediate_size"],
        vocabulary=config["vocab_size"],
        rope_theta=config["rope_parameters"]["rope_theta"],
        epsilon=config["rms_norm_eps"],
    )
    loaded = load_file(folder / "model.safetensors")
    weights = {name.removeprefix("model."): w.to(dtype) for name, w in loaded.items()}
    return shape, weights
