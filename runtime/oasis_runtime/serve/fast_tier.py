"""Whether the fast tier holds what requests select, asked before the model loads."""

from __future__ import annotations

from oasis_runtime.contract import EngineConfig, RequestOptions
from oasis_runtime.core.budget import Budget, sparse_at_once
from oasis_runtime.core.geometry import slots_for
from oasis_runtime.serve.model_folder import ModelShape

_OTHER_ELEMENTS = "--kv-cache-dtype"
"""With it in ``extra_args`` pages have another size than the model's."""


def fast_tier_problem(config: EngineConfig, shape: ModelShape | None) -> str | None:
    """The sentence for a fast tier that is too small; None if it is not, or cannot be known yet.

    The engine checks again with the sizes of the loaded model.
    """
    if shape is None or shape.layers is None or shape.kv_heads is None:
        return None
    requests = sparse_at_once(config, config.max_num_seqs)
    if any(argument.startswith(_OTHER_ELEMENTS) for argument in config.extra_args):
        return None
    heads = max(1, shape.kv_heads // config.tensor_parallel_size)
    page_bytes = shape.page_bytes(config.tiers.block_tokens)
    budget = Budget.of(config.selection, RequestOptions(), config.tiers.block_tokens)
    pages = requests * budget.most_blocks(config.max_model_len or 0) * heads
    if slots_for(config.tiers.fast_bytes, shape.layers, page_bytes) >= pages:
        return None
    return (
        f"tiers.fast_bytes is {config.tiers.fast_bytes} and {requests} request(s) of "
        f"{config.selection.budget_tokens} tokens select {pages * shape.layers * page_bytes} bytes "
        "of pages; raise it to that, or lower selection.budget_tokens or max_num_seqs"
    )
