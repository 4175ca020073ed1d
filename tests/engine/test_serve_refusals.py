"""The real command, where it must not start: exit status 78 and one sentence a problem."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

EX_CONFIG = 78


def refused(*arguments: str, environment: dict[str, str] | None = None) -> list[str]:
    """Run ``serve`` with ``arguments``; returns the sentences it refuses with."""
    run = subprocess.run(
        [sys.executable, "-m", "oasis_runtime", "serve", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert run.returncode == EX_CONFIG, run.stderr
    assert "Traceback" not in run.stderr
    prefix = "oasis_runtime: "
    return [
        line.removeprefix(prefix) for line in run.stderr.splitlines() if line.startswith(prefix)
    ]


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A folder that passes for a model as far as anything is checked before vLLM."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"hidden_size": 64, "num_attention_heads": 1}))
    return str(folder)


def test_without_model_or_file() -> None:
    assert refused() == ["no model given; pass --model DIR, or a file with --config FILE"]


def test_a_configuration_that_is_not_mounted(tmp_path: Path) -> None:
    (sentence,) = refused("--config", str(tmp_path / "engine.yaml"))
    assert sentence.endswith("No such file or directory; check --config and the mount")


def test_two_wrong_values_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "engine.yaml"
    file.write_text("model: /models/x\nrole: boss\ntiers:\n  block_tokens: 48\n")
    assert refused("--config", str(file)) == [
        f"{file} line 2: role must be 'both', 'prefill' or 'decode', not 'boss'",
        f"{file} line 4: tiers.block_tokens must be 16, 32, 64 or 128, not 48",
    ]


def test_a_model_that_is_not_mounted() -> None:
    assert refused("--model", "/models/absent") == [
        "model path /models/absent does not exist in this container; mount it or correct spec.model"
    ]


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    assert refused("--model", str(tmp_path)) == [
        f"model path {tmp_path} has no config.json; point it at a Hugging Face model folder"
    ]


def test_blocks_that_vllms_kernel_cannot_take(model: str) -> None:
    assert refused("--model", model, "--set", "tiers.block_tokens=16") == [
        "tiers.block_tokens is 16 and vLLM's CPU kernel needs a multiple of 32; "
        "set it to 32, 64 or 128"
    ]


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_transfer_engine_over_a_link_of_unknown_speed(model: str, role: str) -> None:
    """Loopback is a virtual interface: its speed is unknown, which is under any gate."""
    sentences = refused(
        "--model", model, "--set", f"role={role}", "--set", "links.min_fast_bytes_per_second=0"
    )
    assert sentences == [
        f"role {role} does not start: the speed of the network link is unknown "
        "(lo is a virtual interface), under the gate of 100 Gb/s "
        "(links.min_network_bits_per_second); "
        "use a faster link, or set links.force to true to use this one"
    ]


def test_a_transfer_engine_whose_memory_is_too_slow(model: str) -> None:
    (sentence,) = refused(
        *("--model", model, "--set", "role=decode"),
        *("--set", "links.min_fast_bytes_per_second=1.0e+15"),
        *("--set", "links.min_network_bits_per_second=0"),
    )
    assert "GB/s, under the gate of 1e+06 GB/s (links.min_fast_bytes_per_second)" in sentence
    assert sentence.endswith("set links.force to true to use this one")


def test_the_address_of_the_pod_is_checked_like_the_files(model: str) -> None:
    """Only the environment says so, and the sentence names the variable's value."""
    (sentence,) = refused(
        *("--model", model, "--set", "role=decode"),
        *("--set", "links.min_fast_bytes_per_second=0"),
        environment={"OASIS_TRANSFER_HOST": "192.0.2.77"},
    )
    assert "no interface of this machine has the address 192.0.2.77" in sentence
