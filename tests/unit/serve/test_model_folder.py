"""What is said about a model before vLLM loads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oasis_runtime.contract import PredictionConfig
from oasis_runtime.serve.model_folder import (
    ModelShape,
    check_heads,
    is_folder,
    read_shape,
    weights,
)
from oasis_runtime.serve.refusal import RefusalError


def folder(tmp_path: Path, **config: object) -> str:
    (tmp_path / "config.json").write_text(json.dumps(config))
    return str(tmp_path)


@pytest.mark.parametrize("model", ["/models/x", "./x", "../x", "~/x"])
def test_what_looks_like_a_path_is_one(model: str) -> None:
    assert is_folder(model)


def test_a_hub_name_is_no_path() -> None:
    assert not is_folder("HuggingFaceTB/SmolLM2-135M-Instruct")


def test_a_hub_name_has_no_shape_yet() -> None:
    assert read_shape("HuggingFaceTB/SmolLM2-135M-Instruct", "auto") is None


def test_an_absent_folder_names_the_remedy() -> None:
    with pytest.raises(RefusalError) as caught:
        read_shape("/models/absent", "auto")
    assert caught.value.sentences == (
        "model path /models/absent does not exist in this container; "
        "mount it or correct spec.model",
    )


def heads(place: str) -> PredictionConfig:
    return PredictionConfig(method="draft", draft_heads="eagle", draft_model=place)


def test_absent_draft_heads_name_the_remedy() -> None:
    with pytest.raises(RefusalError) as caught:
        check_heads(heads("/heads/absent"))
    assert caught.value.sentences == (
        "path of the draft heads /heads/absent does not exist in this container; "
        "mount it or correct prediction.draft_model",
    )


def test_draft_heads_without_config_are_none(tmp_path: Path) -> None:
    with pytest.raises(RefusalError, match=r"draft heads .* has no config\.json"):
        check_heads(heads(str(tmp_path)))


def test_draft_heads_on_the_hub_are_checked_by_vllm() -> None:
    check_heads(heads("a/heads"))
    check_heads(PredictionConfig())


def test_a_folder_without_config_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(RefusalError, match=r"has no config\.json"):
        read_shape(str(tmp_path), "auto")


def test_a_broken_config_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(RefusalError, match="cannot be read as JSON"):
        read_shape(str(tmp_path), "auto")


def test_the_head_width_follows_from_hidden_size_where_it_is_not_given(tmp_path: Path) -> None:
    model = folder(tmp_path, hidden_size=576, num_attention_heads=9)
    assert read_shape(model, "auto") == ModelShape(head_dim=64, element_bytes=2, kv_heads=9)


def test_layers_and_kv_heads_are_read_where_the_config_has_them(tmp_path: Path) -> None:
    sizes = {"hidden_size": 576, "num_attention_heads": 9, "num_hidden_layers": 30}
    assert read_shape(folder(tmp_path, **sizes, num_key_value_heads=3), "auto") == ModelShape(
        head_dim=64, element_bytes=2, layers=30, kv_heads=3
    )


def test_the_head_width_of_the_config_wins(tmp_path: Path) -> None:
    model = folder(tmp_path, hidden_size=1024, num_attention_heads=16, head_dim=128)
    assert read_shape(model, "auto") == ModelShape(head_dim=128, element_bytes=2, kv_heads=16)


@pytest.mark.parametrize(
    ("dtype", "size"), [("auto", 2), ("bfloat16", 2), ("float16", 2), ("float32", 4)]
)
def test_an_element_is_as_wide_as_the_dtype(tmp_path: Path, dtype: str, size: int) -> None:
    shape = read_shape(folder(tmp_path, head_dim=64), dtype)
    assert shape == ModelShape(head_dim=64, element_bytes=size)


@pytest.mark.parametrize("config", [{}, {"text_config": {"head_dim": 64}}, {"hidden_size": 8}])
def test_a_config_that_does_not_say_is_no_reason_to_refuse(
    tmp_path: Path, config: dict[str, object]
) -> None:
    assert read_shape(folder(tmp_path, **config), "auto") is None


def test_a_page_is_keys_and_values_of_one_block_of_one_head() -> None:
    assert ModelShape(head_dim=64, element_bytes=2).page_bytes(32) == 2 * 32 * 64 * 2


def model_of(folder: Path, name: str = "a", **files: bytes) -> str:
    made = folder / name
    made.mkdir()
    for stem, content in {"config": b"{}", **files}.items():
        (made / f"{stem}{'.json' if stem == 'config' else '.safetensors'}").write_bytes(content)
    return str(made)


def test_a_model_is_the_same_wherever_it_lies(tmp_path: Path) -> None:
    layers = bytes(range(256)) * 20000
    here, there = model_of(tmp_path, part=layers), model_of(tmp_path, "b", part=layers)
    assert weights(here) == weights(there)


@pytest.mark.parametrize(
    "other",
    [
        {"part": b"\1" + bytes(5_000_000)},
        {"part": bytes(5_000_000) + b"\1"},
        {"part": bytes(2_000_000) + b"\1" * 1_000_000 + bytes(2_000_001)},
        {"part": bytes(5_000_001), "config": b'{"rope_theta": 1}'},
        {"part": bytes(5_000_001), "more": b""},
    ],
    ids=["first", "last", "middle", "config", "file"],
)
def test_a_model_with_other_weights_is_another(tmp_path: Path, other: dict[str, bytes]) -> None:
    one = weights(model_of(tmp_path, part=bytes(5_000_001)))
    assert weights(model_of(tmp_path, "b", **other)) != one


def test_a_model_of_the_hub_is_known_by_its_name() -> None:
    assert weights("someone/model") == "someone/model"
