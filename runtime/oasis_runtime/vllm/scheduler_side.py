"""The connector's half in vLLM's scheduler: which requests load, which are kept for a peer."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from vllm.logger import init_logger
from vllm.v1.core.kv_cache_manager import KVCacheBlocks
from vllm.v1.core.kv_cache_utils import generate_block_hash_extra_keys
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request, RequestStatus

from oasis_runtime.contract import TRANSFER_PROTOCOL_VERSION, EngineConfig, RequestOptions, Role
from oasis_runtime.core.budget import Budget
from oasis_runtime.pd.digest import prompt_digest
from oasis_runtime.serve.transfer_params import OasisTransfer, TransferParams
from oasis_runtime.vllm.messages import ExportOrder, LoadOrder, Source, StepOrders
from oasis_runtime.vllm.options import request_options
from oasis_runtime.vllm.prefix import PARTIAL, SaltedHashes, salt

logger = init_logger(__name__)


class SchedulerSide:
    """Pure bookkeeping; the orders go to the worker with the next step."""

    def __init__(self, config: EngineConfig, engine_id: str, block: int) -> None:
        self._config = config
        self._engine_id = engine_id
        self._block = block
        self._orders = StepOrders()
        self._generation = 0

    def _transfer(self, request: Request) -> TransferParams | None:
        """The request's transfer, None when it has none that this engine can use."""
        if not request.kv_transfer_params:
            return None
        try:
            return TransferParams.model_validate(request.kv_transfer_params)
        except ValidationError as error:
            logger.warning("ignoring kv_transfer_params of %s: %s", request.request_id, error)
            return None

    def on_new_request(self, request: Request) -> None:
        request.block_hashes = SaltedHashes(
            request.block_hashes, salt(request, self._config.selection, self._block)
        )
        options = request_options(request.sampling_params)
        if options != RequestOptions():
            self._orders.options[request.request_id] = options

    def matched_tokens(self, request: Request, computed: int) -> tuple[int, bool]:
        """Prompt tokens whose KV a prefill engine has, beyond those that are here.

        vLLM asks while nothing of the request is computed: before it loads, and again when that
        failed or the request was preempted and all of it is going to be computed here.
        """
        if request.kv_transfer_params:
            request.kv_transfer_params.pop(PARTIAL, None)
        params = self._transfer(request)
        if params is None or not params.do_remote_prefill or params.oasis is None:
            return 0, False
        if self._config.role is not Role.DECODE:
            return 0, False
        if params.remote_num_tokens not in (None, request.num_prompt_tokens):
            logger.warning(
                "computing the prompt of %s again: it has %d tokens, the prefill engine's had %d",
                request.request_id,
                request.num_prompt_tokens,
                params.remote_num_tokens,
            )
            return 0, False
        count = request.num_prompt_tokens - computed
        return (count, True) if count > 0 else (0, False)

    def after_allocation(self, request: Request, blocks: KVCacheBlocks, external: int) -> None:
        params = self._transfer(request)
        if params is None or not params.do_remote_prefill or request.kv_transfer_params is None:
            return
        request.kv_transfer_params["do_remote_prefill"] = False  # one load a request
        if external == 0 or params.oasis is None:
            return
        budget = Budget.of(
            self._config.selection, request_options(request.sampling_params), self._block
        )
        whole = request.num_prompt_tokens <= budget.dense_up_to
        request.kv_transfer_params[PARTIAL] = not whole
        self._orders.loads.append(
            LoadOrder(
                request_id=request.request_id,
                blocks=tuple(blocks.get_block_ids()[0]),
                first=(request.num_prompt_tokens - external) // self._block,
                tokens=request.num_prompt_tokens,
                source=_source(params, params.oasis, request),
                whole=whole,
            )
        )

    def build(self, output: SchedulerOutput) -> StepOrders:
        orders, self._orders = self._orders, StepOrders()
        orders.ended += sorted(output.finished_req_ids)
        orders.preempted += sorted((output.preempted_req_ids or set()) - output.finished_req_ids)
        orders.scheduled = frozenset(output.num_scheduled_tokens)
        return orders

    def finished(self, request: Request, blocks: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """Whether the blocks are kept for a decode engine, and what tells it where they are."""
        params = self._transfer(request)
        if params is None:
            return False, None
        if self._config.role is Role.DECODE:
            # Refused by the API server or aborted before its first step: nobody will read it.
            if params.do_remote_prefill and params.oasis is not None:
                self._orders.unread.append(_source(params, params.oasis, request))
            return False, None
        # An engine in one role has no port where anybody could read what it keeps.
        if self._config.role is not Role.PREFILL or not params.do_remote_decode:
            return False, None
        capped = request.status == RequestStatus.FINISHED_LENGTH_CAPPED
        if not (capped or request.status == RequestStatus.FINISHED_STOPPED) or not blocks:
            return False, None
        self._generation += 1
        tokens = request.num_prompt_tokens
        used = blocks[: -(-tokens // self._block)]
        self._orders.exports.append(
            ExportOrder(request.request_id, self._generation, tuple(used), tokens, _digest(request))
        )
        return True, {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_engine_id": self._engine_id,
            "remote_request_id": request.request_id,
            "remote_host": self._config.transfer.host,
            "remote_port": self._config.transfer.port,
            "remote_block_ids": [used],
            "remote_num_tokens": tokens,
            "tp_size": self._config.tensor_parallel_size,
            "oasis": {"version": TRANSFER_PROTOCOL_VERSION, "generation": self._generation},
        }


def _source(params: TransferParams, oasis: OasisTransfer, request: Request) -> Source:
    """Of parameters that ask for a load, which are complete then."""
    assert params.remote_host is not None
    assert params.remote_port is not None
    assert params.remote_request_id is not None
    return Source(
        params.remote_host,
        params.remote_port,
        params.remote_request_id,
        oasis.generation,
        _digest(request),
    )


def _digest(request: Request) -> bytes:
    """Of all that decides the KV of the prompt in an engine of this model."""
    others, _ = generate_block_hash_extra_keys(request, 0, request.num_prompt_tokens, 0)
    return prompt_digest(request.prompt_token_ids or (), others or ())
