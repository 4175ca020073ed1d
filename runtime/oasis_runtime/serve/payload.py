"""What the entry point found out, as it travels to the scheduler, the worker and the API server.

It lies in ``kv_transfer_config.kv_connector_extra_config`` under :data:`PAYLOAD_KEY`, the one
place of vLLM's configuration that reaches all of them unchanged.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from oasis_runtime.contract import EngineConfig
from oasis_runtime.tiers.links import LinkReport
from oasis_runtime.tiers.numa import NumaReport

PAYLOAD_KEY = "oasis"


class EnginePayload(BaseModel):
    """The engine's configuration and the state of its machine at start."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    config: EngineConfig
    links: LinkReport
    numa: NumaReport
    weights: str
    """What tells this model from others of its shape (:func:`model_folder.weights`); empty for an
    engine that exchanges no KV."""
