"""Entry point of ``vllm.general_plugins``: runs in every vLLM process, any number of times."""

from __future__ import annotations

from vllm.platforms import current_platform
from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

from oasis_runtime.vllm.prefix import register_spec


def register() -> None:
    """Put our attention backend in the place of vLLM's CPU one.

    It behaves as vLLM's own until :class:`OasisCPUWorker` binds an engine to it, so having the
    package installed changes nothing for servers that do not use it.
    """
    if current_platform.is_cpu():
        register_backend(
            AttentionBackendEnum.CPU_ATTN, "oasis_runtime.vllm.backend.OasisAttentionBackend"
        )
        register_spec()
