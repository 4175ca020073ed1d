"""All that the operator and the engine share.

Import-light on purpose (pydantic only): the operator renders :class:`EngineConfig` into a
ConfigMap and reads the engine's metrics by the names below; it imports nothing else of the
runtime, and never torch or vLLM.
"""

from __future__ import annotations

import ipaddress
import re
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

# Ports, the same in every pod of every role.
HTTP_PORT = 8000
"""OpenAI API and /metrics of an engine."""
TRANSFER_PORT = 8600
"""Control channel of the KV transfer; rank r listens on TRANSFER_PORT + r."""
ROUTER_PORT = 8080
ROUTER_METRICS_PORT = 29000
OPERATOR_METRICS_PORT = 8081
OPERATOR_HEALTH_PORT = 8082

ENGINE_CONFIG_PATH = "/etc/oasiskv/engine.yaml"
"""Where the operator mounts the engine's configuration inside a pod."""

NODE_RANK_VARIABLE = "OASIS_NODE_RANK"
NODE_LEADER_VARIABLE = "OASIS_NODE_LEADER"
"""Which of an engine's nodes a pod is, and where the one with rank 0 is (:class:`NodesConfig`)."""

LEASE_SECONDS = 30.0
"""A prefill engine keeps an export this long after the last heartbeat of its reader."""
HEARTBEAT_SECONDS = 5.0
"""How often a decode engine renews the leases it reads under."""
DRAIN_MARGIN_SECONDS = 15.0
"""Time on top of the longest lease that a draining pod is given to answer and to exit."""

DRAIN_SETTLE_SECONDS = 3.0
"""After so long every router knows that a pod is ending, and chooses it for no new request."""
DRAIN_QUIET_SECONDS = 30.0
"""A decode engine that is ending waits so long for requests whose prompts are being prefilled,
where it cannot ask the prefill engines whether there are any."""

TRANSFER_PROTOCOL_VERSION = 3
"""Engines with another version refuse each other with a sentence; bump on any wire change."""


class Role(StrEnum):
    """What an engine does. ``both`` serves a request from prompt to end in one process."""

    BOTH = "both"
    PREFILL = "prefill"
    DECODE = "decode"


class Metric(StrEnum):
    """Names of the engine's metrics on vLLM's own ``/metrics`` (label ``engine`` is vLLM's).

    Ratios are published as pairs of counters, so that they add up over pods:
    residency hit = RESIDENT / SELECTED, late fraction = LATE / SELECTED,
    prediction agreement = AGREED / PREDICTED. Recall and output error are sampled histograms.
    A *page* is one block of one KV head of one layer.
    """

    PAGES_SELECTED = "oasis_pages_selected_total"
    PAGES_RESIDENT = "oasis_pages_resident_total"
    PAGES_LATE = "oasis_pages_late_total"
    PAGES_FAILED = "oasis_pages_failed_total"
    PAGES_PREDICTED = "oasis_pages_predicted_total"
    PAGES_AGREED = "oasis_pages_agreed_total"
    MASS_RECALL = "oasis_attention_mass_recall"
    OUTPUT_ERROR = "oasis_attention_output_error"
    TIER_BYTES = "oasis_tier_bytes_total"
    """Labels ``source`` and ``target`` (tiers) and ``reason`` (admission, prefetch, demand)."""
    DENSE_TRANSFER_BYTES = "oasis_dense_transfer_bytes_total"
    """What whole-prompt transfers of the same requests would have moved."""
    STEPS = "oasis_request_steps_total"
    """Decode steps of requests, by label ``mode`` (sparse, dense)."""
    FALLBACKS = "oasis_fallbacks_total"
    """Requests that were served densely, by label ``reason``."""
    DRAFTS_DROPPED = "oasis_drafts_dropped_total"
    """Times that a request's drafting was stopped because its drafts did not pay, by label
    ``method`` (draft, ngram)."""
    RESIDENT_BLOCKS_PER_HEAD = "oasis_resident_blocks_per_head"
    FAST_SLOTS = "oasis_fast_slots"
    """Slots of the fast tier by label ``state`` (used, total). A page stays until its slot is
    needed, so ``used`` does not fall when requests end."""
    PREFETCH_CAP = "oasis_prefetch_cap_ratio"
    LINK_BANDWIDTH = "oasis_link_bandwidth_bytes_per_second"
    """Measured at start and online, by label ``link`` (host_fast, network)."""
    LINK_ENABLED = "oasis_link_enabled"
    WAIT_SECONDS = "oasis_layer_wait_seconds_total"
    ESCALATED_HEADS = "oasis_escalated_heads"
    """KV heads, over all layers, whose audited recall is low, so that they may select more."""
    EXPORTS = "oasis_exports_outstanding"
    EXPORT_OLDEST_SECONDS = "oasis_export_oldest_age_seconds"
    LEASES_EXPIRED = "oasis_leases_expired_total"
    STALE_READS = "oasis_stale_reads_total"
    """Pages that arrived for a generation that was gone, and were thrown away."""
    REFUSED_TRANSFERS = "oasis_refused_transfers_total"
    NUMA_ALIGNED = "oasis_numa_aligned"
    """1 aligned, 0 not, -1 unknown (no device to align with)."""


def _number(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("write a number, not true or false")
    return value


def _plain(value: str) -> str:
    """The text becomes an argument of a program, which a NUL would end."""
    if any(character < " " and character not in "\n\t" for character in value):
        raise ValueError("write it without control characters")
    return value


_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_ZONE = re.compile(r"[A-Za-z0-9_.-]{1,15}")
"""Of an IPv6 address: the name of a network interface."""


def _host(value: str) -> str:
    address, percent, zone = value.partition("%")
    try:
        ipaddress.ip_address(address)
    except ValueError:
        if all(_LABEL.fullmatch(label) for label in value.split(".")):
            return value
    else:
        if not percent or (_ZONE.fullmatch(zone) and ".." not in zone):
            return value
    raise ValueError("write an IP address or a host name")


Int = Annotated[int, BeforeValidator(_number)]
Float = Annotated[float, BeforeValidator(_number)]
Text = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_plain)]
Argument = Annotated[str, Field(max_length=1 << 16), AfterValidator(_plain)]
Host = Annotated[str, Field(max_length=253), AfterValidator(_host)]
Bytes = Annotated[Int, Field(ge=1 << 20, le=1 << 50)]
"""From 1 MiB to 1 PiB."""


class _Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class TierConfig(_Config):
    """Sizes of the tiers of one engine, in bytes over all layers and KV heads of a rank."""

    block_tokens: Literal[16, 32, 64, 128] = 32
    host_bytes: Bytes = 4 << 30
    """The host tier: holds the full KV of every request."""
    fast_bytes: Bytes = 1 << 30
    """The fast tier (HBM on a GPU): holds the pages that the next token needs."""


class SelectionConfig(_Config):
    """Which pages of a request a decode step attends to (DESIGN: selection, budget)."""

    mode: Literal["auto", "sparse", "dense"] = "auto"
    """``auto`` is dense while sparsity would not pay, ``sparse`` never falls back for length."""
    budget_tokens: Annotated[Int, Field(ge=64, le=131072)] = 2048
    """Tokens in top-K blocks per KV head, on top of the sinks and the local window."""
    budget_grows_from: Annotated[Int, Field(ge=128, le=1 << 24)] | None = 32768
    """Context in tokens from which on the budget grows with its square root; unset: never."""
    sink_tokens: Annotated[Int, Field(ge=0, le=1024)] = 64
    window_tokens: Annotated[Int, Field(ge=1, le=4096)] = 64
    escalate: bool = True
    """Give KV heads whose audited recall is low twice the budget where the fast tier has room."""
    min_recall: Annotated[Float, Field(ge=0, le=1)] = 0.5
    """A request whose audited recall stays under this is decoded densely for a while; 0: never."""


MOST_DRAFTS = 16
"""Draft tokens of a request in one step."""


class PredictionConfig(_Config):
    """Whose query selects the blocks of the next step."""

    method: Literal["auto", "draft", "ngram", "ema", "previous"] = "ngram"
    """``draft`` and ``ngram`` ride draft tokens as more rows of a step, ``draft`` those of the
    model's draft heads; without a draft they are as ``ema``, the mean of the last queries. ``auto``
    is ``draft`` where there are heads, then ``ngram``, then ``ema``, as long as the drafts of a
    request pay. ``previous`` is the last query alone."""
    draft_tokens: Annotated[Int, Field(ge=1, le=MOST_DRAFTS)] = 1
    """Most drafts of a request in one step."""
    draft_heads: Literal["eagle", "eagle3", "mtp"] | None = None
    """Kind of the heads. Those of ``mtp`` are part of the model."""
    draft_model: Text | None = None
    """Folder or hub name of EAGLE heads."""
    draft_revision: Text | None = None
    """Branch, tag or commit of ``draft_model`` on the hub."""
    ngram_min: Annotated[Int, Field(ge=1, le=16)] = 2
    ngram_max: Annotated[Int, Field(ge=1, le=16)] = 4

    @model_validator(mode="after")
    def _ordered(self) -> PredictionConfig:
        if self.ngram_min > self.ngram_max:
            raise ValueError("prediction.ngram_min must not exceed prediction.ngram_max")
        return self

    @model_validator(mode="after")
    def _heads(self) -> PredictionConfig:
        if self.method == "draft" and self.draft_heads is None:
            raise ValueError(
                "prediction.method draft needs prediction.draft_heads: eagle, eagle3 or mtp"
            )
        of_their_own = self.draft_heads in ("eagle", "eagle3")
        if of_their_own and self.draft_model is None:
            raise ValueError(
                f"prediction.draft_heads {self.draft_heads} needs prediction.draft_model, "
                "the folder of the heads"
            )
        if self.draft_model is not None and not of_their_own:
            raise ValueError(
                "prediction.draft_model is of EAGLE heads; set prediction.draft_heads to eagle or "
                "eagle3, or leave it out"
            )
        if self.draft_revision is not None and self.draft_model is None:
            raise ValueError("prediction.draft_revision is that of prediction.draft_model: name it")
        return self


class PrefetchConfig(_Config):
    """How missing pages come into the fast tier."""

    threads: Annotated[Int, Field(ge=1, le=16)] = 1
    cap: Annotated[Float, Field(gt=0, le=1)] | None = None
    """Most pages admitted per step as a share of the budget; unset: from measured link and step."""
    wait_ms: Annotated[Float, Field(ge=0, le=60000)] = 5.0
    """Longest that a layer waits for its own pages before it goes on without them."""


class AuditConfig(_Config):
    """Sampled comparison with dense attention."""

    every_steps: Annotated[Int, Field(ge=1, le=1 << 31)] = 16


class LinkConfig(_Config):
    """The gates under which a slow link disables what would need a fast one."""

    min_fast_bytes_per_second: Annotated[Float, Field(ge=0)] = 50e9
    min_network_bits_per_second: Annotated[Float, Field(ge=0)] = 100e9
    force: bool = False
    """Use the tiers even where a link is under its gate; the metrics still say so."""


class NumaConfig(_Config):
    policy: Literal["required", "preferred", "none"] = "preferred"


class NodesConfig(_Config):
    """An engine whose ranks are divided among several processes, each on a node of its own.

    All of them have the same configuration but for ``rank``. The one with rank 0 serves the API.
    """

    count: Annotated[Int, Field(ge=1, le=64)] = 1
    rank: Annotated[Int, Field(ge=0, le=63)] = 0
    leader: Host = "127.0.0.1"
    """Where the others find the process with rank 0."""

    @model_validator(mode="after")
    def _one_of_them(self) -> NodesConfig:
        if self.rank >= self.count:
            raise ValueError("nodes.rank must be under nodes.count: ranks begin with 0")
        return self


class TransferConfig(_Config):
    """Prefill/decode transfer of one engine. ``host`` is what the peer connects to."""

    host: Host = "127.0.0.1"
    port: Annotated[Int, Field(ge=1, le=65535)] = TRANSFER_PORT
    lease_seconds: Annotated[Float, Field(gt=0, le=3600)] = LEASE_SECONDS
    heartbeat_seconds: Annotated[Float, Field(gt=0, le=600)] = HEARTBEAT_SECONDS
    landing_bytes: Bytes = 256 << 20
    """Registered memory that peers write fetched pages into (decode) or send from (prefill)."""

    @model_validator(mode="after")
    def _renewed_in_time(self) -> TransferConfig:
        if 2 * self.heartbeat_seconds > self.lease_seconds:
            raise ValueError(
                "transfer.heartbeat_seconds must be at most half of transfer.lease_seconds, "
                "so that one lost heartbeat does not end a lease"
            )
        return self


class EngineConfig(_Config):
    """The whole configuration of one engine process (``engine.yaml``)."""

    model: Text
    """A local folder, or a hub name where the pod may download."""
    served_model_name: Text | None = None
    role: Role = Role.BOTH
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    max_model_len: Annotated[Int, Field(ge=128, le=1 << 24)] | None = None
    max_num_seqs: Annotated[Int, Field(ge=1, le=4096)] = 16
    tensor_parallel_size: Annotated[Int, Field(ge=1, le=64)] = 1
    nodes: NodesConfig = NodesConfig()
    port: Annotated[Int, Field(ge=1, le=65535)] = HTTP_PORT
    tiers: TierConfig = TierConfig()
    selection: SelectionConfig = SelectionConfig()
    prediction: PredictionConfig = PredictionConfig()
    prefetch: PrefetchConfig = PrefetchConfig()
    audit: AuditConfig = AuditConfig()
    links: LinkConfig = LinkConfig()
    numa: NumaConfig = NumaConfig()
    transfer: TransferConfig = TransferConfig()
    extra_args: tuple[Argument, ...] = ()
    """Passed on to vLLM's own server as they are."""

    @model_validator(mode="after")
    def _divided_evenly(self) -> EngineConfig:
        if self.tensor_parallel_size % self.nodes.count:
            raise ValueError("nodes.count must divide tensor_parallel_size")
        if self.nodes.count > 1 and self.role is not Role.BOTH:
            raise ValueError(
                "nodes.count over 1 needs role both: the transfer finds all ranks of an engine at "
                "one address"
            )
        return self


class RequestOptions(_Config):
    """Per-request overrides: ``vllm_xargs`` / ``extra_args`` key ``oasis`` of a request."""

    mode: Literal["auto", "sparse", "dense"] | None = None
    budget_tokens: Annotated[Int, Field(ge=64, le=131072)] | None = None
