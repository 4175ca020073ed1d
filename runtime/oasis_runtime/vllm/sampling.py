"""Sampling where vLLM 0.32 on CPUs ends the engine with an error: next to drafts, and with a seed.

With drafting on, vLLM verifies drafts in every step. When there are none, a prompt's last step for
one, its sampling constraints see no rows; and when there are some, its CPU kernel spreads a
request's ``top_k`` over their rows as if it were another type. Both fail for ``top_k`` alone.

Of a prompt that is computed in parts vLLM samples after each of them, throws the token away and
sets the request's random numbers back, which torch has for no generator on a CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch
from vllm.v1.outputs import SamplerOutput
from vllm.v1.sample import rejection_sampler
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.rejection_sampler import RejectionSampler
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata
from vllm.v1.worker.gpu_input_batch import InputBatch


class OasisRejectionSampler(RejectionSampler):
    """vLLM's, corrected; see the module."""

    def forward(
        self,
        metadata: SpecDecodeMetadata,
        draft_probs: torch.Tensor | None,
        logits: torch.Tensor,
        sampling_metadata: SamplingMetadata,
    ) -> SamplerOutput:
        if metadata.max_spec_len > 0:
            return super().forward(metadata, draft_probs, logits, sampling_metadata)
        output: SamplerOutput = self.sampler(
            logits=logits[metadata.bonus_logits_indices], sampling_metadata=sampling_metadata
        )
        return output


def expand_batch_to_tokens(
    x: torch.Tensor,
    cu_num_tokens: torch.Tensor,
    num_tokens: int,
    replace_from: int = 0,
    replace_to: int = 0,
) -> torch.Tensor:
    """The value of ``x`` [requests] for each of a request's tokens, of which there are
    ``cu_num_tokens`` [requests] in it and those before it; one value replaced by another."""
    counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
    expanded = x.repeat_interleave(counts.long(), output_size=num_tokens)
    return torch.where(expanded == replace_from, replace_to, expanded).to(x.dtype)


def correct_expansion() -> None:
    """From now on vLLM's sampler spreads a request's values over its rows in this way."""
    rejection_sampler.expand_batch_to_tokens = expand_batch_to_tokens


@contextmanager
def undisturbed_seeds(batch: InputBatch, discarded: npt.NDArray[np.bool_]) -> Iterator[None]:
    """Meanwhile the requests of the batch whose token will be thrown away sample with numbers that
    are not their own. ``discarded``: by position in the batch."""
    positions = [i for i in np.nonzero(discarded)[0].tolist() if i in batch.generators]
    own = {i: batch.generators.pop(i) for i in positions}
    try:
        yield
    finally:
        batch.generators.update(own)
