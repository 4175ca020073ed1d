"""Configuration: file, then environment, then --set; every problem is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from oasis_runtime.contract import EngineConfig
from oasis_runtime.serve.config_file import Override, load_config, parse_override
from oasis_runtime.serve.refusal import RefusalError

MODEL = Override(("model",), "/models/x", "--model")


def load(
    tmp_path: Path, text: str, *overrides: Override, environment: dict[str, str] | None = None
) -> EngineConfig:
    file = tmp_path / "engine.yaml"
    file.write_text(text)
    return load_config(file, overrides, environment or {})


def refusal(tmp_path: Path, text: str, *overrides: Override) -> list[str]:
    with pytest.raises(RefusalError) as caught:
        load(tmp_path, text, *overrides)
    prefix = f"{tmp_path}/"
    return [sentence.removeprefix(prefix) for sentence in caught.value.sentences]


def test_a_file_with_a_model_is_enough(tmp_path: Path) -> None:
    assert load(tmp_path, "model: /models/x") == EngineConfig(model="/models/x")


def test_a_model_alone_is_enough_without_a_file() -> None:
    assert load_config(None, [MODEL], {}) == EngineConfig(model="/models/x")


def test_neither_file_nor_model_says_what_to_pass() -> None:
    with pytest.raises(RefusalError) as caught:
        load_config(None, [], {})
    assert caught.value.sentences == (
        "no model given; pass --model DIR, or a file with --config FILE",
    )


def test_the_pods_address_overrides_the_file(tmp_path: Path) -> None:
    text = "model: m\ntransfer: {host: 10.0.0.1, port: 9000}"
    config = load(tmp_path, text, environment={"OASIS_TRANSFER_HOST": "10.0.0.2"})
    assert (config.transfer.host, config.transfer.port) == ("10.0.0.2", 9000)


def test_a_pod_of_an_engine_on_several_nodes_knows_its_rank_and_its_leader(tmp_path: Path) -> None:
    text = "model: m\ntensor_parallel_size: 4\nnodes: {count: 2}"
    environment = {"OASIS_NODE_RANK": "1", "OASIS_NODE_LEADER": "large-0.large.team"}
    nodes = load(tmp_path, text, environment=environment).nodes
    assert (nodes.count, nodes.rank, nodes.leader) == (2, 1, "large-0.large.team")


def test_set_overrides_the_environment(tmp_path: Path) -> None:
    override = parse_override("transfer.host=10.0.0.3")
    environment = {"OASIS_TRANSFER_HOST": "10.0.0.2"}
    config = load(tmp_path, "model: m", override, environment=environment)
    assert config.transfer.host == "10.0.0.3"


def test_the_last_set_of_a_key_wins(tmp_path: Path) -> None:
    overrides = [parse_override("port=9001"), parse_override("port=9002")]
    assert load(tmp_path, "model: m", *overrides).port == 9002


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("port=9000", ("port",), 9000),
        ("links.force=true", ("links", "force"), True),
        ("prefetch.cap=0.25", ("prefetch", "cap"), 0.25),
        ("prefetch.cap=null", ("prefetch", "cap"), None),
        ("model=/models/a=b", ("model",), "/models/a=b"),
        ("extra_args=[--seed, '1']", ("extra_args",), ["--seed", "1"]),
    ],
)
def test_set_takes_yaml_values(text: str, path: tuple[str, ...], value: object) -> None:
    override = parse_override(text)
    assert (override.path, override.value) == (path, value)


@pytest.mark.parametrize("text", ["port", "=3", "tiers.=3", ".port=3", "port=[1"])
def test_a_set_that_is_none_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(RefusalError, match="--set"):
        parse_override(text)


def test_a_wrong_value_names_line_key_rule_and_value(tmp_path: Path) -> None:
    assert refusal(tmp_path, "model: m\ntiers:\n  fast_bytes: 1048576\n  block_tokens: 48\n") == [
        "engine.yaml line 4: tiers.block_tokens must be 16, 32, 64 or 128, not 48"
    ]


def test_every_problem_gets_its_own_sentence(tmp_path: Path) -> None:
    sentences = refusal(tmp_path, "role: boss\nport: 0\n")
    assert len(sentences) == 3
    assert "engine.yaml: model is missing; set it" in sentences
    assert "engine.yaml line 1: role must be 'both', 'prefill' or 'decode', not 'boss'" in sentences
    assert "engine.yaml line 2: port must be greater than or equal to 1, not 0" in sentences


def test_a_misspelt_key_is_corrected(tmp_path: Path) -> None:
    assert refusal(tmp_path, "model: m\nselection:\n  buget_tokens: 2048\n") == [
        "engine.yaml line 3: selection.buget_tokens is not a setting; did you mean budget_tokens?"
    ]


def test_an_unknown_key_lists_the_known_ones(tmp_path: Path) -> None:
    assert refusal(tmp_path, "model: m\naudit: {zzz: 1}\n") == [
        "engine.yaml line 2: audit.zzz is not a setting; the settings here are every_steps"
    ]


def test_a_rule_over_two_settings_points_at_their_section(tmp_path: Path) -> None:
    (sentence,) = refusal(tmp_path, "model: m\ntransfer:\n  heartbeat_seconds: 29\n")
    assert sentence.startswith(
        "engine.yaml line 2: transfer.heartbeat_seconds must be at most half"
    )


def test_a_wrong_set_is_named_instead_of_the_file(tmp_path: Path) -> None:
    text = "model: m\nport: 8000\n"
    assert refusal(tmp_path, text, parse_override("port=high")) == [
        "--set port: port must be a valid integer, unable to parse string as an integer, not 'high'"
    ]


def test_a_rule_broken_by_a_set_names_the_set(tmp_path: Path) -> None:
    (sentence,) = refusal(tmp_path, "model: m\n", parse_override("transfer.heartbeat_seconds=29"))
    assert sentence.startswith("--set transfer.heartbeat_seconds: ")


def test_a_set_through_a_single_value_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, "model: m\n", parse_override("model.name=x")) == [
        "--set model.name: model is a single value, not a section"
    ]


def test_a_section_that_is_a_list_says_so(tmp_path: Path) -> None:
    (sentence,) = refusal(tmp_path, "model: m\ntiers: [1]\n")
    assert sentence.startswith("engine.yaml line 2: tiers must be ")


@pytest.mark.parametrize(("text", "found"), [("", "empty"), ("- a\n", "a list"), ("3", "a int")])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str, found: str) -> None:
    (sentence,) = refusal(tmp_path, text)
    assert sentence == (
        f"engine.yaml must be a mapping of settings, such as 'model: /models/x'; it is {found}"
    )


def test_broken_yaml_names_the_line(tmp_path: Path) -> None:
    (sentence,) = refusal(tmp_path, "model: m\ntiers: {a: 1\n")
    assert sentence.startswith("engine.yaml line 3: not valid YAML (")


DIGITS = "9" * 5000


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            f"model: {'x' * 5000}",
            f"line 1: model must have at most 4096 characters, not '{'x' * 59}...",
        ),
        ("model: m\nport: true", "line 2: port: write a number, not true or false"),
        ("model: m\nport: 8000\nport: 8001", "line 3: port is set a second time; keep one"),
        (f"model: m\nport: {DIGITS}", f"line 2: {DIGITS[:100]}... cannot be read as int"),
        ('model: m\nport: "8.5"', "line 2: port must be a valid integer, unable to parse"),
        (
            "model: m\ntiers: {host_bytes: 1208925819614629174706176}",
            "line 2: tiers.host_bytes must be less than or equal to 1125899906842624, not 12089",
        ),
        ("model: m\nserved_model_name: ''", "line 2: served_model_name must have at least 1 char"),
        ('model: "m\\0"', "line 1: model: write it without control characters"),
        ('model: "\\ud800"', "line 1: half of a surrogate pair is no character"),
        ('model: "\\UFFFFFFFF"', "is not valid YAML; fix the syntax"),
        ("model: m\0", "has the character #x0000, which YAML forbids"),
        ("model: m\nextra_args: ['a\0']", "has the character #x0000, which YAML forbids"),
        ('model: m\nextra_args: ["a\\0"]', "line 2: extra_args[0]: write it without control char"),
        (
            "model: m\naudit: {every_steps: .inf}",
            "line 2: audit.every_steps must be a finite number",
        ),
        ("model: m\nlinks: {min_fast_bytes_per_second: .nan}", "line 2: links.min_fast_bytes_per"),
        (f"model: {'[' * 5000}", "is nested too deeply; settings are at most three deep"),
        ("model: &a [*a]", "line 1: an alias (*) is not supported here; write the value again"),
        ("model: !!timestamp x\nport: !!int x", "line 2: x cannot be read as int"),
        ("model: !!python/name:os.system x", "line 1: the tag python/name:os.system is not supp"),
        ("? [model]\n: m", "line 1: a key must be a word"),
        ('model: m\n"a\\nb": 1', "line 2: a\\nb is not a setting; the settings here are model, se"),
        ("# " + "x" * 300_000, "has more than 256 KiB; check that it is the configuration"),
        ("model: m\ntransfer: {host: ../../}", "line 2: transfer.host: write an IP address or a"),
        (
            f"model: m\ntransfer: {{host: {'a' * 254}}}",
            "line 2: transfer.host must have at most 253",
        ),
        ("model: m\ntransfer: {host: 'fe80::1%../..'}", "line 2: transfer.host: write an IP addr"),
    ],
)
def test_what_cannot_be_meant_gets_one_short_sentence(
    tmp_path: Path, text: str, sentence: str
) -> None:
    (said,) = refusal(tmp_path, text)
    assert said.startswith(f"engine.yaml {sentence}")
    assert len(said) < 400
    assert said.isprintable()


@pytest.mark.parametrize("name", ["2001-99-99", "2001-01-01", "=", "<<", "'8000'", "'true'"])
def test_a_word_is_a_word_even_where_yaml_knows_better(tmp_path: Path, name: str) -> None:
    assert load(tmp_path, f"model: {name}").model == name.strip("'")


@pytest.mark.parametrize(
    "host", ["10.0.0.1", "::1", "fe80::1%eth0", "localhost", "a.b-c.svc.cluster.local", "host_1"]
)
def test_addresses_and_names_of_hosts_are_taken(tmp_path: Path, host: str) -> None:
    assert load(tmp_path, f"model: m\ntransfer: {{host: '{host}'}}").transfer.host == host


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "engine.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RefusalError, match="not UTF-8"):
        load_config(file, [], {})


def test_a_missing_file_names_path_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(RefusalError) as caught:
        load_config(tmp_path / "none.yaml", [], {})
    assert caught.value.sentences == (
        f"cannot read the configuration {tmp_path}/none.yaml: No such file or directory; "
        "check --config and the mount",
    )
