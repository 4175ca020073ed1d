"""How long a prefill, a transfer and a decode step take.

A model of 8.2 billion parameters (36 layers, 8 KV heads of 128, hidden 4096) on one GPU of 989
TFLOP/s a pod. Nothing here was measured on a GPU: the figures are published ones or follow from
published ones, and each says which.
"""

from __future__ import annotations

from dataclasses import dataclass

PARAMETERS = 8.2e9
LAYERS, HIDDEN = 36, 4096
FLOPS = 989e12
UTILISATION = 0.5
"""Of the peak in prefill: assumed, and the same for every policy."""
KV_BYTES = 147_456
"""Of one token: 2 * 36 layers * 8 heads * 128 * 2 bytes."""
BUDGET, SINKS, WINDOW = 2048, 64, 64
SUMMARY_SHARE = 132 / 8192
"""Of a summary to its page, blocks of 32 tokens (docs/concepts.md)."""
STEP_SECONDS, STEP_SECONDS_A_REQUEST = 0.00667, 0.000208
"""A decode step of n requests: through 10 ms at 16 and 20 ms at 64, the two points that the
project's design assumes for this model."""
HOST_LINK = 55e9
"""PCIe 5 x16, bytes a second."""
NETWORK = 12.5e9
"""100 Gb/s: the engine's own gate for its network link."""
MISSES = 0.05
"""Share of selected pages that a step fetches while drafts predict well: the cap of the OasisKV
paper (arXiv 2608.08097)."""
MISSES_UNPREDICTED = 0.16
"""While they do not: the paper's sets of one query and the next agree by 83.9 %."""
MAX_REQUESTS = 32
"""In the batch of a decode pod; the fast tier holds the pages of all of them."""


def prefill_seconds(prompt: int) -> float:
    """Dense matrices, and causal attention over half of prompt times prompt."""
    dense = 2 * PARAMETERS * prompt
    attention = 4 * LAYERS * HIDDEN * prompt * prompt / 2
    return (dense + attention) / (FLOPS * UTILISATION)


def is_sparse(context: int) -> bool:
    """``mode: auto``, docs/concepts.md."""
    return context > 2 * (BUDGET + SINKS + WINDOW)


def transfer_bytes(prompt: int) -> float:
    """Whole prompts where decode will be dense, else hot pages and all summaries."""
    if not is_sparse(prompt):
        return float(prompt * KV_BYTES)
    hot = BUDGET + SINKS + WINDOW
    return KV_BYTES * (hot + SUMMARY_SHARE * prompt)


@dataclass(frozen=True)
class Step:
    """One decode step of a pod."""

    seconds: float
    miss: float
    """Share of the selected pages that were not resident."""
    fetched: float
    """Bytes."""


def step(requests: int, miss: float) -> Step:
    """As long as the slower of compute and fetch takes (throughput N / max(T, N f K kappa / B))."""
    fetched = requests * miss * BUDGET * KV_BYTES
    compute = STEP_SECONDS + STEP_SECONDS_A_REQUEST * requests
    return Step(max(compute, fetched / HOST_LINK), miss, fetched)


def steps(miss: float) -> tuple[Step, ...]:
    """By the number of requests."""
    return tuple(step(requests, miss) for requests in range(MAX_REQUESTS + 1))
