"""Drafts of the requests for which they pay: ``prediction.method: auto``, acted out."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from vllm.config import VllmConfig
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata
from vllm.v1.spec_decode.ngram_proposer import NgramProposer
from vllm.v1.worker.gpu_input_batch import InputBatch

from oasis_runtime.contract import PredictionConfig
from oasis_runtime.core.engine import SparseEngine

Drafts = list[list[int]]


class Propose(Protocol):
    """vLLM's ``propose_draft_token_ids``: drafts of each request of the batch, none where it has
    sampled nothing."""

    def __call__(
        self,
        scheduler_output: SchedulerOutput,
        sampled_token_ids: Drafts,
        sampling_metadata: SamplingMetadata,
        hidden_states: torch.Tensor,
        sample_hidden_states: torch.Tensor,
        aux_hidden_states: list[torch.Tensor] | None,
        spec_decode_metadata: SpecDecodeMetadata | None,
        common_attn_metadata: Any,
        slot_mappings: Any,
    ) -> Drafts | torch.Tensor: ...


def look_up(vllm_config: VllmConfig, prediction: PredictionConfig) -> NgramProposer:
    """vLLM's, also where its configuration is of draft heads."""
    own = copy.copy(vllm_config)
    own.speculative_config = copy.copy(vllm_config.speculative_config)
    assert own.speculative_config is not None
    own.speculative_config.prompt_lookup_min = prediction.ngram_min
    own.speculative_config.prompt_lookup_max = prediction.ngram_max
    return NgramProposer(own)


class AutoDrafting:
    """In the place of vLLM's ``propose_draft_token_ids``; ``heads`` is that method where vLLM was
    started with draft heads."""

    def __init__(
        self,
        engine: SparseEngine,
        batch: InputBatch,
        ngram: NgramProposer,
        heads: Propose | None,
    ) -> None:
        self._engine = engine
        self._batch = batch
        self._ngram = ngram
        self._heads = heads

    def propose(
        self,
        scheduler_output: SchedulerOutput,
        sampled_token_ids: Drafts,
        sampling_metadata: SamplingMetadata,
        hidden_states: torch.Tensor,
        sample_hidden_states: torch.Tensor,
        aux_hidden_states: list[torch.Tensor] | None,
        spec_decode_metadata: SpecDecodeMetadata | None,
        common_attn_metadata: Any,
        slot_mappings: Any,
    ) -> Drafts:
        """Drafts by the method that pays for each request, none where none does."""
        names = self._batch.req_ids
        if spec_decode_metadata is not None:
            self._verify(names, sampled_token_ids, spec_decode_metadata.num_draft_tokens)
        methods = [self._engine.draft_method(name) for name in names]
        drafts: Drafts = [[] for _ in names]
        # A prompt's steps too: the heads need keys and values of all of a request's tokens.
        if self._heads is not None and "draft" in methods:
            made = self._heads(
                scheduler_output,
                sampled_token_ids,
                sampling_metadata,
                hidden_states,
                sample_hidden_states,
                aux_hidden_states,
                spec_decode_metadata,
                common_attn_metadata,
                slot_mappings,
            )
            rows: Drafts = made.tolist() if isinstance(made, torch.Tensor) else made
            drafts = [r if m == "draft" else [] for r, m in zip(rows, methods, strict=True)]
        if "ngram" in methods:
            found: Drafts = self._ngram.propose(
                scheduler_output.num_spec_tokens_to_schedule,
                [
                    s if m == "ngram" else []
                    for s, m in zip(sampled_token_ids, methods, strict=True)
                ],
                self._batch.num_tokens_no_spec,
                self._batch.token_ids_cpu,
            )
            drafts = [f or d for f, d in zip(found, drafts, strict=True)]
        return drafts

    def _verify(self, names: Sequence[str], sampled: Drafts, drafted: Sequence[int]) -> None:
        for name, tokens, count in zip(names, sampled, drafted, strict=True):
            if count and tokens:
                self._engine.verified(name, count, len(tokens) - 1)
