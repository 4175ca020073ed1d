"""What the connector's scheduler half tells its worker half in each step."""

from __future__ import annotations

from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata

from oasis_runtime.contract import RequestOptions


@dataclass(frozen=True)
class Source:
    """A prefill engine's export. ``digest``: of the prompt that it must be of."""

    host: str
    port: int
    request_id: str
    generation: int
    digest: bytes


@dataclass(frozen=True)
class LoadOrder:
    """Take a request's KV from a prefill engine into ``blocks`` (host block of each logical one).

    ``first``: first logical block to load, those before it were found in the prefix cache.
    ``tokens``: of the whole prompt. ``whole``: all pages are loaded, not only the hot ones.
    """

    request_id: str
    blocks: tuple[int, ...]
    first: int
    tokens: int
    source: Source
    whole: bool


@dataclass(frozen=True)
class ExportOrder:
    """Keep a finished request's KV for a decode engine. ``digest``: of its prompt."""

    request_id: str
    generation: int
    blocks: tuple[int, ...]
    tokens: int
    digest: bytes


@dataclass
class StepOrders(KVConnectorMetadata):
    """``ended``: requests that finished or were aborted; ``preempted``: those that will start
    again. The blocks of both may be reused from this step on, except where an export or a load
    still holds them. ``scheduled``: requests with tokens in this step. ``unread``: exports that
    were meant for requests that ended before they were loaded."""

    options: dict[str, RequestOptions] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    preempted: list[str] = field(default_factory=list)
    scheduled: frozenset[str] = frozenset()
    loads: list[LoadOrder] = field(default_factory=list)
    unread: list[Source] = field(default_factory=list)
    exports: list[ExportOrder] = field(default_factory=list)


@dataclass
class Results:
    """What happened since the last step, in vLLM's terms."""

    sent: set[str] = field(default_factory=set)
    received: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    invalid_blocks: set[int] = field(default_factory=set)
