"""``kv_transfer_params``: what a router carries from a prefill engine to a decode engine.

The field names are those of vLLM's own NixlConnector (0.32,
``kv_connector/v1/nixl/pull_scheduler.py``), so that a stock router works: it sends
``do_remote_decode`` to a prefill engine with every ``remote_*`` null, and hands what that engine
returns to a decode engine unchanged, unknown keys too. What only our engines understand lies
under ``oasis``.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

_MAX_NAME = 256
"""Characters of an engine id, request id or host name (RFC 1035 allows 253)."""
_MAX_BLOCKS = 1 << 20
"""32 million tokens at the default block: more than any model takes."""

Name = Annotated[str, Field(min_length=1, max_length=_MAX_NAME)]
BlockId = Annotated[int, Field(ge=0, lt=1 << 31)]
BlockList = Annotated[list[BlockId], Field(max_length=_MAX_BLOCKS)]


class OasisTransfer(BaseModel):
    """Our part of an export."""

    model_config = ConfigDict(strict=True, frozen=True)

    version: Annotated[int, Field(ge=1)]
    """``contract.TRANSFER_PROTOCOL_VERSION`` of the engine that exports."""
    generation: Annotated[int, Field(ge=0)]
    """Of the export: a page is only read for the generation it was exported under."""


class TransferParams(BaseModel):
    """One request's transfer. Values are not coerced: a router passes JSON on as it came.

    Keys that are not known here are ignored, as vLLM's own connector does.
    """

    model_config = ConfigDict(strict=True, frozen=True)

    do_remote_decode: bool = False
    """Prefill only: keep the KV and say where it is."""
    do_remote_prefill: bool = False
    """Decode only: take the KV from where the ``remote_*`` say."""
    remote_engine_id: Name | None = None
    remote_request_id: Name | None = None
    remote_host: Name | None = None
    remote_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    remote_block_ids: Annotated[list[BlockList], Field(max_length=64)] | None = None
    """One list of block ids for every KV cache group."""
    remote_num_tokens: Annotated[int, Field(ge=0)] | None = None
    tp_size: Annotated[int, Field(ge=1, le=64)] | None = None
    """Tensor parallel size of the engine that exports; rank r listens on remote_port + r."""
    oasis: OasisTransfer | None = None
    """Absent when another connector exported; such an export cannot be read."""

    @model_validator(mode="after")
    def _one_direction(self) -> TransferParams:
        if self.do_remote_decode and self.do_remote_prefill:
            raise ValueError(
                "do_remote_decode and do_remote_prefill are both true; "
                "set the first for a prefill engine and the second for a decode engine"
            )
        return self

    @model_validator(mode="after")
    def _complete(self) -> TransferParams:
        if not self.do_remote_prefill:
            return self
        needed = {
            "remote_engine_id": self.remote_engine_id,
            "remote_request_id": self.remote_request_id,
            "remote_host": self.remote_host,
            "remote_port": self.remote_port,
            "remote_block_ids": self.remote_block_ids,
        }
        absent = [name for name, value in needed.items() if value is None]
        if absent:
            raise ValueError(
                f"do_remote_prefill is true without {', '.join(absent)}; "
                "pass on what the prefill engine returned"
            )
        return self
