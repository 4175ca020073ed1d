"""vLLM CPU worker that serves decode from a fast tier smaller than its KV cache."""

from __future__ import annotations

import time
from typing import Any

from vllm.config import get_layers_from_vllm_config
from vllm.distributed.kv_transfer import get_kv_transfer_group
from vllm.logger import init_logger
from vllm.model_executor.layers.attention import Attention
from vllm.v1.core.sched.output import GrammarOutput, SchedulerOutput
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheSpec
from vllm.v1.outputs import AsyncModelRunnerOutput, ModelRunnerOutput
from vllm.v1.worker.cpu_worker import CPUWorker

from oasis_runtime.contract import PredictionConfig
from oasis_runtime.vllm import session as sessions
from oasis_runtime.vllm.audit import Auditor
from oasis_runtime.vllm.backend import OasisAttentionImpl, OasisMetadataBuilder
from oasis_runtime.vllm.connector import OasisConnector
from oasis_runtime.vllm.drafting import AutoDrafting, look_up
from oasis_runtime.vllm.layout import probe
from oasis_runtime.vllm.options import engine_payload
from oasis_runtime.vllm.prefix import OasisAttentionSpec
from oasis_runtime.vllm.sampling import (
    OasisRejectionSampler,
    correct_expansion,
    undisturbed_seeds,
)

logger = init_logger(__name__)

_LOADING_SECONDS = 0.002
_KEEPING_SECONDS = 0.02
"""Pauses of an engine whose only work is to wait for pages, or for a peer to have read its own."""


class OasisCPUWorker(CPUWorker):
    """Binds the engine to the pieces that vLLM made: builders, attention layers, connector."""

    session: sessions.Session | None = None
    """Known once the KV cache is allocated."""

    def get_kv_cache_spec(self) -> dict[str, KVCacheSpec]:
        specs: dict[str, KVCacheSpec] = super().get_kv_cache_spec()
        payload = engine_payload(self.vllm_config)
        if payload is None:
            return specs
        return {
            name: OasisAttentionSpec.of(spec, payload.config.selection)
            if type(spec) is FullAttentionSpec
            else spec
            for name, spec in specs.items()
        }

    def initialize_from_config(self, kv_cache_config: KVCacheConfig) -> None:
        super().initialize_from_config(kv_cache_config)
        payload = engine_payload(self.vllm_config)
        if payload is None:
            raise ValueError(
                "OasisCPUWorker needs kv_connector OasisConnector with an `oasis` section in "
                "kv_connector_extra_config; start the server with `python -m oasis_runtime serve`"
            )
        names = [n for group in kv_cache_config.kv_cache_groups for n in group.layer_names]
        found: dict[str, Any] = get_layers_from_vllm_config(self.vllm_config, Attention, names)
        # Draft heads have layers in the same cache. They stay vLLM's: dense, over the host tier.
        modules = self.model_runner.get_model().modules()
        own = {m.layer_name for m in modules if isinstance(m, Attention)}
        layers = {name: layer for name, layer in found.items() if name in own}
        if self.vllm_config.speculative_config is not None:
            correct_expansion()
            runner = self.model_runner
            runner.rejection_sampler = OasisRejectionSampler(
                runner.sampler, self.vllm_config.speculative_config, self.device
            )
        builders: list[OasisMetadataBuilder] = []
        for group in (group for groups in self.model_runner.attn_groups for group in groups):
            for builder in group.metadata_builders:
                if not isinstance(builder, OasisMetadataBuilder):
                    raise ValueError(f"vLLM chose another backend ({type(builder).__name__})")
                builders.append(builder)
        first = next(iter(layers.values()))
        _, _, block, both = first.kv_cache.shape
        layout = probe(block, both // 2, first.kv_cache.dtype, builders[0].isa)
        session = self.session = sessions.create(
            self.vllm_config, payload.config, layers, self.model_runner.input_batch, layout
        )
        geometry = session.engine.tables.geometry
        auditor = Auditor(session, layout, first.impl.scale, payload.config.audit.every_steps)
        for builder in builders:
            builder.bind(session, auditor)
        for index, layer in enumerate(layers.values()):
            assert isinstance(layer.impl, OasisAttentionImpl)
            layer.impl.bind(session, index, auditor)
        if payload.config.prediction.method == "auto" and self.vllm_config.speculative_config:
            self._draft_by_what_pays(session, payload.config.prediction)
        connector = get_kv_transfer_group()
        assert isinstance(connector, OasisConnector)
        connector.bind(session, layout)
        logger.info(
            "OasisKV: host tier %d blocks of %.2f MiB, fast tier %d pages a layer (%.0f MiB)",
            geometry.host_blocks,
            geometry.block_bytes / 2**20,
            geometry.slots,
            geometry.slots * geometry.layers * geometry.page_bytes / 2**20,
        )

    def _draft_by_what_pays(self, session: sessions.Session, prediction: PredictionConfig) -> None:
        runner: Any = self.model_runner
        heads = None if prediction.draft_heads is None else runner.propose_draft_token_ids
        drafting = AutoDrafting(
            session.engine, runner.input_batch, look_up(self.vllm_config, prediction), heads
        )
        # vLLM's worker makes its own runner, so that a subclass of it would never be used.
        runner.propose_draft_token_ids = drafting.propose

    def execute_model(
        self, scheduler_output: SchedulerOutput
    ) -> ModelRunnerOutput | AsyncModelRunnerOutput | None:
        """The connector acts first: what ended or arrived decides how the step is prepared."""
        connector = get_kv_transfer_group()
        assert isinstance(connector, OasisConnector)
        waiting = connector.before_step(scheduler_output.kv_connector_metadata)
        if scheduler_output.total_num_scheduled_tokens == 0:
            # vLLM steps on without work while a transfer is under way, about every millisecond.
            time.sleep(_LOADING_SECONDS if waiting else _KEEPING_SECONDS)
        output: ModelRunnerOutput | AsyncModelRunnerOutput | None = super().execute_model(
            scheduler_output
        )
        return output

    def sample_tokens(
        self, grammar_output: GrammarOutput | None
    ) -> ModelRunnerOutput | AsyncModelRunnerOutput:
        runner = self.model_runner
        with undisturbed_seeds(runner.input_batch, runner.discard_request_mask.np):
            output: ModelRunnerOutput | AsyncModelRunnerOutput = super().sample_tokens(
                grammar_output
            )
            return output
