"""The environment that vLLM's server is started with."""

from __future__ import annotations

from collections.abc import Mapping

from oasis_runtime.contract import EngineConfig
from oasis_runtime.serve.model_folder import is_folder
from oasis_runtime.serve.threads import BIND_VARIABLE, UNPINNED, CpuShare, thread_variables
from oasis_runtime.serve.versions import PLUGIN_NAME

_SPLIT_VARIABLE = "VLLM_ENABLE_V1_MULTIPROCESSING"
_PLUGINS_VARIABLE = "VLLM_PLUGINS"
_CACHE_SIZE_VARIABLE = "VLLM_CPU_KVCACHE_SPACE"
"""Silently overrides ``--kv-cache-memory-bytes`` on CPU, which is ``tiers.host_bytes``."""

_PRIMITIVES_VARIABLE = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
_PRIMITIVES = "256"
"""Products with weights that oneDNN keeps compiled: one for each shape of weights and number of
tokens in a step, 0.3 MB each. It keeps 1,024 unless it is told otherwise. vLLM's products alone,
with this project's test model and numbers of tokens drawn at random, grew by 330 MB then, and with
256 by 80 MB. To compile one anew takes about a millisecond, and vLLM itself keeps those of the last
32 numbers of tokens."""


def server_environment(
    config: EngineConfig, share: CpuShare, environment: Mapping[str, str]
) -> dict[str, str]:
    """``environment`` with what the engine needs, and without what would contradict its config."""
    result = dict(environment)
    result.pop(_CACHE_SIZE_VARIABLE, None)
    result["VLLM_NO_USAGE_STATS"] = "1"
    # The plugin's worker is written for vLLM's first model runner, the default on CPU.
    result["VLLM_USE_V2_MODEL_RUNNER"] = "0"
    # vLLM compiles some small functions when they are first asked for (logprobs), for which an
    # image has no compiler. The engine runs eagerly anyway.
    result["TORCHDYNAMO_DISABLE"] = "1"
    result.setdefault(_PRIMITIVES_VARIABLE, _PRIMITIVES)
    if is_folder(config.model):
        result["HF_HUB_OFFLINE"] = "1"
    if plugins := environment.get(_PLUGINS_VARIABLE):
        names = plugins.split(",")
        result[_PLUGINS_VARIABLE] = ",".join(
            names if PLUGIN_NAME in names else [*names, PLUGIN_NAME]
        )
    result.update(thread_variables(share, environment))
    if result.get(BIND_VARIABLE) == UNPINNED and config.tensor_parallel_size == 1:
        # Scheduler and worker in one process. In two, each spins while it waits for the other,
        # which takes half of a small machine; vLLM wants two only to pin the worker's threads.
        result[_SPLIT_VARIABLE] = "0"
    return result
