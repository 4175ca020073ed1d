"""Whatever ``engine.yaml`` holds, it loads or is refused in sentences."""

from __future__ import annotations

import tempfile
from pathlib import Path

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oasis_runtime.contract import EngineConfig
from oasis_runtime.serve.arguments import argument_problems
from oasis_runtime.serve.config_file import load_config, parse_override
from oasis_runtime.serve.model_folder import is_folder
from oasis_runtime.serve.refusal import RefusalError

GOOD = yaml.safe_dump(
    EngineConfig(model="/models/x", served_model_name="x", extra_args=("--seed", "1")).model_dump(
        mode="json"
    ),
    sort_keys=False,
)
ODD = st.sampled_from(
    [
        *(
            "null",
            "true",
            "-1",
            "0",
            "1e400",
            ".nan",
            "-.inf",
            "0x" + "f" * 60,
            "9" * 5000,
            "1:99:9",
        ),
        *(
            "2001-99-99",
            "!!int x",
            "!!binary x",
            "!!float ''",
            "!x y",
            "&a b",
            "*a",
            "<<",
            "=",
            "~",
        ),
        *("[]", "{}", "[1, [2]]", "{a: {b: c}}", "{? [1] : 2}", "[" * 3000, "- a", "'", '"'),
        *('"\\0"', '"\\ud800"', '"\\UFFFFFFFF"', "x" * 5000, "../../", "a..b", "%YAML 1.1", "---"),
        *(
            "! ",
            "|",
            ">2",
            "\t",
            "\u2028",
            "\ufeff",
            "\x07",
            "\U0001f980",
            "? x",
            "- : -",
            "@",
            "`",
        ),
    ]
)
PIECES = ODD | st.text(max_size=12)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A good file with up to four places of it changed into something else."""
    lines = GOOD.splitlines()
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(["value", "key", "line", "again", "gone", "character"])):
            case "value":
                lines[at] = f"{lines[at].partition(':')[0]}: {draw(PIECES)}"
            case "key":
                lines[at] = f"{draw(PIECES)}:{lines[at].partition(':')[2]}"
            case "line":
                lines.insert(at, draw(st.integers(0, 4)) * " " + draw(PIECES))
            case "again":
                lines.insert(draw(st.integers(0, len(lines))), lines[at])
            case "gone" if len(lines) > 1:
                del lines[at]
            case _:
                where = draw(st.integers(0, len(lines[at])))
                lines[at] = lines[at][:where] + draw(PIECES) + lines[at][where + 1 :]
    return "\n".join(lines)


def assert_readable(refusal: RefusalError) -> None:
    assert refusal.sentences
    for sentence in refusal.sentences:
        assert sentence.isprintable(), sentence
        assert len(sentence) < 1000, sentence


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts() | st.text())
def test_any_text_loads_or_is_refused_in_sentences(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "engine.yaml"
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            config = load_config(file, [], {})
        except RefusalError as refusal:
            assert_readable(refusal)
            return
    argument_problems(config)
    is_folder(config.model)
    config.transfer.host.encode("idna")
    assert EngineConfig.model_validate_json(config.model_dump_json()) == config


KEYS = st.sampled_from(["model", "port", "tiers", "tiers.fast_bytes", "extra_args", "x", "a..b"])


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(KEYS | st.text(max_size=8), st.sampled_from(["=", ""]), PIECES)
def test_any_override_is_taken_or_refused_in_sentences(key: str, sign: str, value: str) -> None:
    try:
        load_config(None, [parse_override("model=m"), parse_override(key + sign + value)], {})
    except RefusalError as refusal:
        assert_readable(refusal)
