"""The environment of vLLM's server."""

from __future__ import annotations

import pytest

from oasis_runtime.contract import EngineConfig
from oasis_runtime.serve.environment import server_environment
from oasis_runtime.serve.threads import CpuShare

MANY = CpuShare(allowed=16, quota=None)


def environment(model: str = "/models/x", **given: str) -> dict[str, str]:
    return server_environment(EngineConfig(model=model), MANY, given)


def test_what_was_there_stays() -> None:
    assert environment(PATH="/bin")["PATH"] == "/bin"


def test_a_cache_size_that_would_override_the_host_tier_is_dropped() -> None:
    assert "VLLM_CPU_KVCACHE_SPACE" not in environment(VLLM_CPU_KVCACHE_SPACE="40")


def test_nothing_is_reported_to_anybody() -> None:
    assert environment()["VLLM_NO_USAGE_STATS"] == "1"


def test_onednn_keeps_no_more_products_compiled_than_a_server_reuses() -> None:
    assert environment()["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "256"


def test_a_capacity_that_is_set_stays() -> None:
    name = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
    assert environment(**{name: "1024"})[name] == "1024"


def test_a_model_in_a_folder_is_served_without_asking_the_hub() -> None:
    assert environment()["HF_HUB_OFFLINE"] == "1"


def test_a_model_of_the_hub_may_be_downloaded() -> None:
    assert "HF_HUB_OFFLINE" not in environment(model="org/name")


@pytest.mark.parametrize(
    ("given", "expected"), [("other", "other,oasiskv"), ("oasiskv,other", "oasiskv,other")]
)
def test_a_list_of_plugins_always_has_ours(given: str, expected: str) -> None:
    assert environment(VLLM_PLUGINS=given)["VLLM_PLUGINS"] == expected


def test_without_a_list_vllm_loads_every_plugin() -> None:
    assert "VLLM_PLUGINS" not in environment()


def test_the_workers_threads_are_set_where_vllm_would_choose_wrongly() -> None:
    result = server_environment(EngineConfig(model="m"), CpuShare(2, 0.5), {})
    assert (result["VLLM_CPU_OMP_THREADS_BIND"], result["OMP_NUM_THREADS"]) == ("nobind", "1")


@pytest.mark.parametrize(
    ("share", "parallel", "one_process"),
    [
        (CpuShare(2, 0.5), 1, True),
        (CpuShare(2, 0.5), 2, False),
        (MANY, 1, False),
    ],
)
def test_scheduler_and_worker_share_a_process_only_on_few_cpus(
    share: CpuShare, parallel: int, one_process: bool
) -> None:
    config = EngineConfig(model="m", tensor_parallel_size=parallel)
    variables = server_environment(config, share, {})
    assert (variables.get("VLLM_ENABLE_V1_MULTIPROCESSING") == "0") == one_process
