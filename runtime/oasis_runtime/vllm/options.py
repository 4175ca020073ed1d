"""The engine's and a request's options, as they travel through vLLM."""

from __future__ import annotations

from vllm.config import VllmConfig
from vllm.sampling_params import SamplingParams

from oasis_runtime.contract import RequestOptions
from oasis_runtime.serve.payload import PAYLOAD_KEY, EnginePayload
from oasis_runtime.serve.request_options import OPTIONS_KEY, parse_request_options


def engine_payload(vllm_config: VllmConfig) -> EnginePayload | None:
    """What the entry point passed on; None where vLLM runs without our connector."""
    transfer = vllm_config.kv_transfer_config
    extra = None if transfer is None else transfer.kv_connector_extra_config.get(PAYLOAD_KEY)
    return None if extra is None else EnginePayload.model_validate(extra)


def request_options(params: SamplingParams | None) -> RequestOptions:
    """A request's overrides.

    The entry point's middleware refuses malformed ones with a 400; where vLLM is called without
    it they count as absent, because the engine must not die of one request.
    """
    raw = (params.extra_args or {}).get(OPTIONS_KEY) if params is not None else None
    if raw is None:
        return RequestOptions()
    try:
        return parse_request_options(raw)
    except ValueError:
        return RequestOptions()
