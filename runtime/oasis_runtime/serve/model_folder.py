"""What can be said about the model before vLLM loads it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from oasis_runtime.contract import PredictionConfig
from oasis_runtime.serve.refusal import RefusalError

_CONFIG = "config.json"
_WEIGHTS = frozenset({".safetensors", ".bin", ".pt", ".pth", ".gguf"})
_SAMPLES = 16
_SAMPLE_BYTES = 1 << 16
"""Of each file of weights: 1 MiB, so that a model of many files costs a fraction of a second."""


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a model that decide the size of a page."""

    head_dim: int
    element_bytes: int
    layers: int | None = None
    """None where the config does not say."""
    kv_heads: int | None = None

    def page_bytes(self, block_tokens: int) -> int:
        """Keys and values of one block of one KV head of one layer."""
        return 2 * block_tokens * self.head_dim * self.element_bytes


def is_folder(model: str) -> bool:
    """Whether the name means a place in the file system rather than a model on the hub."""
    if model.startswith(("/", "./", "../", "~")):
        return True
    try:
        return Path(model).is_dir()
    except OSError:  # longer than a name of the file system can be
        return False


def read_shape(model: str, dtype: str) -> ModelShape | None:
    """Sizes from the folder's ``config.json``; None for a hub name, which has no folder yet.

    Raises:
        RefusalError: the folder or its ``config.json`` is missing or not readable.
    """
    if not is_folder(model):
        return None
    return _shape(_read_config(model, "model path", "spec.model"), dtype)


def check_heads(config: PredictionConfig) -> None:
    """What vLLM would say of absent draft heads only after it has loaded the model.

    Raises:
        RefusalError: their folder or its ``config.json`` is missing or not readable.
    """
    if config.draft_model is not None and is_folder(config.draft_model):
        _read_config(config.draft_model, "path of the draft heads", "prediction.draft_model")


def _read_config(model: str, named: str, setting: str) -> Any:
    folder = Path(model)
    try:
        exists = folder.is_dir()
    except OSError as error:
        raise RefusalError(
            [f"{named} {model[:200]} cannot be opened ({error.strerror}); correct {setting}"]
        ) from None
    if not exists:
        raise RefusalError(
            [f"{named} {model} does not exist in this container; mount it or correct {setting}"]
        )
    file = folder / _CONFIG
    try:
        return json.loads(file.read_bytes())
    except FileNotFoundError:
        raise RefusalError(
            [f"{named} {model} has no config.json; point it at a Hugging Face model folder"]
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise RefusalError(
            [f"{file} cannot be read as JSON ({error}); copy the model folder again"]
        ) from None


def weights(model: str) -> str:
    """What tells a model from others of its shape: KV of one means nothing to the other.

    Of a folder it is a digest over its config and samples of its weights, wherever it lies; of a
    hub name the name.

    Raises:
        RefusalError: a file of the folder is not readable.
    """
    if not is_folder(model):
        return model
    digest = blake2b(digest_size=8)
    try:
        for file in sorted(Path(model).iterdir()):
            if file.name == _CONFIG or (file.suffix in _WEIGHTS and file.is_file()):
                _sample(file, digest)
    except OSError as error:
        raise RefusalError(
            [f"{error.filename} cannot be read ({error.strerror}); copy the model folder again"]
        ) from None
    return digest.hexdigest()


def _sample(file: Path, digest: blake2b) -> None:
    size = file.stat().st_size
    digest.update(f"{file.name} {size}\n".encode())
    with file.open("rb") as content:
        last = max(0, size - _SAMPLE_BYTES)
        for start in sorted({last * i // (_SAMPLES - 1) for i in range(_SAMPLES)}):
            content.seek(start)
            digest.update(content.read(_SAMPLE_BYTES))


def _shape(content: Any, dtype: str) -> ModelShape | None:
    """None where the config does not say, as in nested configs of multimodal models."""
    if not isinstance(content, dict):
        return None
    hidden, heads = content.get("hidden_size"), content.get("num_attention_heads")
    head_dim = content.get("head_dim")
    if not isinstance(head_dim, int):
        if not isinstance(hidden, int) or not isinstance(heads, int) or heads < 1:
            return None
        head_dim = hidden // heads
    # "auto" never means 4 bytes: vLLM stores even float32 weights as 16 bits then.
    layers = content.get("num_hidden_layers")
    kv_heads = content.get("num_key_value_heads", heads)
    return ModelShape(
        head_dim=head_dim,
        element_bytes=4 if dtype == "float32" else 2,
        layers=layers if isinstance(layers, int) else None,
        kv_heads=kv_heads if isinstance(kv_heads, int) else None,
    )
