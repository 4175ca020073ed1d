from __future__ import annotations

from typing import Any

import pytest
import yaml

from oasis_operator.desired.engine_config import engine_config, engine_yaml
from oasis_operator.desired.roles import role_plans
from oasis_runtime.contract import EngineConfig, Role
from tests.unit.operator.make import deployment


def configs(**spec: Any) -> list[EngineConfig]:
    od = deployment(**spec)
    return [engine_config(od, plan) for plan in role_plans(od)]


def test_prefill_and_decode_have_their_roles() -> None:
    assert [config.role for config in configs()] == [Role.PREFILL, Role.DECODE]


def test_without_prefill_one_engine_does_both() -> None:
    assert [config.role for config in configs(prefill=None)] == [Role.BOTH]


def test_the_served_name_is_that_of_the_deployment_unless_said() -> None:
    assert configs()[0].served_model_name == "chat"
    assert configs(servedModelName="tiny")[0].served_model_name == "tiny"


@pytest.mark.parametrize(
    ("spec", "path", "value"),
    [
        ({"engine": {"dtype": "float32"}}, "dtype", "float32"),
        ({"engine": {"maxModelLen": 4096}}, "max_model_len", 4096),
        ({"engine": {"maxNumSeqs": 3}}, "max_num_seqs", 3),
        ({"engine": {"tensorParallelSize": 2}}, "tensor_parallel_size", 2),
        ({"engine": {"extraArgs": ["--a", "b"]}}, "extra_args", ("--a", "b")),
        ({"kv": {"blockTokens": 64}}, "tiers.block_tokens", 64),
        ({"kv": {"hostSize": "2Gi"}}, "tiers.host_bytes", 2 << 30),
        ({"kv": {"fastSize": "64Mi"}}, "tiers.fast_bytes", 64 << 20),
        ({"kv": {"mode": "sparse"}}, "selection.mode", "sparse"),
        ({"kv": {"budgetTokens": 512}}, "selection.budget_tokens", 512),
        ({"kv": {"sinkTokens": 0}}, "selection.sink_tokens", 0),
        ({"kv": {"windowTokens": 32}}, "selection.window_tokens", 32),
        ({"kv": {"prediction": {"method": "previous"}}}, "prediction.method", "previous"),
        ({"kv": {"budgetGrowsFrom": 8192}}, "selection.budget_grows_from", 8192),
        ({}, "selection.budget_grows_from", 32768),
        ({"kv": {"prediction": {"draftTokens": 4}}}, "prediction.draft_tokens", 4),
        ({"kv": {"prediction": {"ngramMin": 1}}}, "prediction.ngram_min", 1),
        ({"kv": {"prediction": {"ngramMax": 6}}}, "prediction.ngram_max", 6),
        ({"kv": {"links": {"force": True}}}, "links.force", True),
        ({"topology": {"numa": {"policy": "required"}}}, "numa.policy", "required"),
    ],
)
def test_every_field_reaches_every_engine(spec: dict[str, Any], path: str, value: Any) -> None:
    for config in configs(**spec):
        found: Any = config
        for name in path.split("."):
            found = getattr(found, name)
        assert found == value


def test_a_role_has_its_own_numa_policy() -> None:
    prefill, decode = configs(prefill={"numa": {"policy": "required"}})
    assert (prefill.numa.policy, decode.numa.policy) == ("required", "preferred")


def test_the_hubs_revision_comes_before_the_users_arguments() -> None:
    config = configs(
        model={"hub": {"name": "a/b", "revision": "r"}}, engine={"extraArgs": ["--x"]}
    )[0]
    assert config.model == "a/b"
    assert config.extra_args == ("--revision", "r", "--x")


def test_heads_are_told_by_kind_place_and_revision() -> None:
    heads = {"kind": "eagle3", "model": {"hub": {"name": "a/heads", "revision": "r"}}}
    kv = {"prediction": {"method": "draft", "heads": heads}}
    told = configs(prefill=None, kv=kv)[0].prediction
    assert (told.draft_heads, told.draft_model, told.draft_revision) == ("eagle3", "a/heads", "r")


def test_heads_in_the_model_need_no_place() -> None:
    kv = {"prediction": {"method": "auto", "heads": {"kind": "mtp"}}}
    told = configs(prefill=None, kv=kv)[0].prediction
    assert (told.draft_heads, told.draft_model) == ("mtp", None)


def test_the_file_reads_back_as_the_same_configuration() -> None:
    config = configs(kv={"budgetTokens": 512}, engine={"extraArgs": ["--x"]})[0]
    assert EngineConfig.model_validate(yaml.safe_load(engine_yaml(config))) == config


def test_the_file_leaves_defaults_out() -> None:
    assert "sink_tokens" not in engine_yaml(configs()[0])
