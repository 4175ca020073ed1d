"""The KV connector that vLLM loads: one class for the scheduler's and the worker's half."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
    PromMetric,
    PromMetricT,
)
from vllm.distributed.parallel_state import get_tensor_model_parallel_rank
from vllm.v1.attention.backend import AttentionMetadata
from vllm.v1.core.kv_cache_manager import KVCacheBlocks
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.request import Request

from oasis_runtime.contract import Role
from oasis_runtime.serve.payload import EnginePayload
from oasis_runtime.vllm.messages import Results, StepOrders
from oasis_runtime.vllm.metrics import OasisPromMetrics, OasisStats
from oasis_runtime.vllm.options import engine_payload
from oasis_runtime.vllm.scheduler_side import SchedulerSide
from oasis_runtime.vllm.worker_side import OwnerRole, ReaderRole, WorkerSide

if TYPE_CHECKING:
    from vllm.forward_context import ForwardContext

    from oasis_runtime.vllm.layout import PageLayout
    from oasis_runtime.vllm.session import Session


class OasisConnector(KVConnectorBase_V1, SupportsHMA):
    def __init__(
        self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig
    ) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        payload = engine_payload(vllm_config)
        if payload is None:
            raise ValueError(
                "OasisConnector has no `oasis` section in kv_connector_extra_config; "
                "start the server with `python -m oasis_runtime serve`"
            )
        self._payload = payload
        self._worker: WorkerSide | None = None
        self._results = Results()
        self._scheduler: SchedulerSide | None = None
        if role is KVConnectorRole.SCHEDULER:
            assert vllm_config.kv_transfer_config is not None
            self._scheduler = SchedulerSide(
                payload.config,
                str(vllm_config.kv_transfer_config.engine_id),
                vllm_config.cache_config.block_size,
            )

    # ------------------------------------------------------------------ worker

    def bind(self, session: Session, layout: PageLayout) -> None:
        """Start serving; opens the transfer of a prefill or decode engine.

        Raises TransferError when its port or NIXL is not available.
        """
        owner, reader = _peers(self._payload, session, layout)
        self._worker = WorkerSide(session, owner, reader)

    def before_step(self, orders: KVConnectorMetadata | None) -> bool:
        """Act on the scheduler's orders before the step is prepared.

        Returns whether a load is under way: the caller should come back soon.
        """
        if self._worker is None or not isinstance(orders, StepOrders):
            return False
        self._worker.before_step(orders)
        return self._worker.waiting

    def start_load_kv(self, forward_context: ForwardContext, **kwargs: Any) -> None:
        """Nothing: loads start in :meth:`before_step`."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing: a layer waits for its pages where it attends to them."""

    def save_kv_layer(
        self,
        layer_name: str,
        kv_layer: torch.Tensor,
        attn_metadata: AttentionMetadata,
        **kwargs: Any,
    ) -> None:
        """Nothing: the host tier is written with the layer."""

    def wait_for_save(self) -> None:
        """The step's forward is over: start the copies and fetches for the next one."""
        if self._worker is not None:
            self._worker.after_step()

    def get_transfer_results(
        self,
        finished_req_ids: set[str],  # noqa: ARG002 (vLLM's name; StepOrders.ended says it earlier)
    ) -> KVConnectorTransferResults:
        if self._worker is None:
            return KVConnectorTransferResults()
        self._results = self._worker.take_results()
        return KVConnectorTransferResults(
            finished_sending=self._results.sent,
            finished_recving=self._results.received,
            failed_recving=self._results.failed,
        )

    def get_block_ids_with_load_errors(self) -> set[int]:
        return self._results.invalid_blocks

    def get_kv_connector_stats(self) -> KVConnectorStats | None:
        if self._worker is None:
            return None
        stats = OasisStats(data=self._worker.stats())
        return None if stats.is_empty() else stats

    def shutdown(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    # --------------------------------------------------------------- scheduler

    def _side(self) -> SchedulerSide:
        if self._scheduler is None:
            raise RuntimeError("a scheduler method was called on the worker's connector")
        return self._scheduler

    def on_new_request(self, request: Request) -> None:
        self._side().on_new_request(request)

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        return self._side().matched_tokens(request, num_computed_tokens)

    def update_state_after_alloc(
        self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int
    ) -> None:
        self._side().after_allocation(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> KVConnectorMetadata:
        return self._side().build(scheduler_output)

    def request_finished(
        self, request: Request, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        return self._side().finished(request, block_ids)

    def request_finished_all_groups(
        self, request: Request, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        return self._side().finished(request, block_ids[0])

    # ----------------------------------------------------------------- metrics

    @classmethod
    def build_kv_connector_stats(
        cls, data: dict[str, Any] | None = None
    ) -> KVConnectorStats | None:
        return OasisStats(data=data or {})

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: VllmConfig,
        metric_types: dict[type[PromMetric], type[PromMetricT]],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> KVConnectorPromMetrics | None:
        return OasisPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)


def _peers(
    payload: EnginePayload, session: Session, layout: PageLayout
) -> tuple[OwnerRole | None, ReaderRole | None]:
    role = payload.config.role
    if role is Role.BOTH:
        return None, None
    from oasis_runtime.vllm import transfer  # needs NIXL, which one role does without

    rank = get_tensor_model_parallel_rank()
    if role is Role.PREFILL:
        return transfer.open_owner(payload, session, layout, rank), None
    return None, transfer.open_reader(payload, session, layout, rank)
