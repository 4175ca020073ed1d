"""EAGLE heads of random weights for the model under test."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file


def random_heads(model: Path, folder: Path) -> Path:
    """One decoder layer over the embedding of a token and the hidden state before it (EAGLE, arXiv
    2401.15077), as vLLM reads it; what it drafts is hardly ever right. Returns ``folder``."""
    config = json.loads((model / "config.json").read_text())
    config["num_hidden_layers"] = 1
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    queries, keys = (
        config["head_dim"] * config[f"num_{which}_heads"] for which in ("attention", "key_value")
    )
    shapes = {
        "fc": (hidden, 2 * hidden),
        "layers.0.self_attn.q_proj": (queries, hidden),
        "layers.0.self_attn.k_proj": (keys, hidden),
        "layers.0.self_attn.v_proj": (keys, hidden),
        "layers.0.self_attn.o_proj": (hidden, queries),
        "layers.0.mlp.gate_proj": (inner, hidden),
        "layers.0.mlp.up_proj": (inner, hidden),
        "layers.0.mlp.down_proj": (hidden, inner),
    }
    generator = torch.Generator().manual_seed(0)
    weights = {
        f"{name}.weight": torch.randn(*shape, generator=generator) * shape[1] ** -0.5
        for name, shape in shapes.items()
    }
    weights["layers.0.post_attention_layernorm.weight"] = torch.ones(hidden)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights, folder / "model.safetensors")
    return folder
