"""Both roles at once: within bounds, GPU budget and ratio, as near to what is wanted as can be."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from oasis_operator.autoscaling.policy import Bounds, ScalingSpec


@dataclass(frozen=True)
class Pair:
    """Pods of both roles."""

    prefill: int
    decode: int


def allocate(wanted: Pair, current: Pair, spec: ScalingSpec) -> Pair | None:
    """The allowed pair that covers the worse covered role best, then the other one, and then has
    the fewest GPUs.

    Where the budget does not cover what is wanted, the pair there is stays unless another covers
    more than the tolerance more: else every small change would move a GPU to and fro.

    Returns:
        ``None`` where the bounds allow no pair at all.
    """
    best = max(
        _allowed(wanted, spec),
        key=lambda pair: (*sorted(_coverages(pair, wanted)), -gpus(pair, spec), pair.prefill),
        default=None,
    )
    if best is None or coverage(best, wanted) >= 1 or not allowed(current, spec):
        return best
    enough = (1 - spec.behaviour.tolerance) * coverage(best, wanted)
    return current if coverage(current, wanted) >= enough else best


def coverage(pair: Pair, wanted: Pair) -> float:
    """Share of what is wanted that the worse covered role gets, at most 1."""
    return min(_coverages(pair, wanted))


def _coverages(pair: Pair, wanted: Pair) -> tuple[float, float]:
    prefill = pair.prefill / wanted.prefill if wanted.prefill else 1.0
    return min(1.0, prefill), min(1.0, pair.decode / wanted.decode)


def gpus(pair: Pair, spec: ScalingSpec) -> int:
    prefill = pair.prefill * spec.prefill.gpus if spec.prefill else 0
    return prefill + pair.decode * spec.decode.gpus


def allowed(pair: Pair, spec: ScalingSpec) -> bool:
    """Whether a pair keeps bounds, ratio and budget."""
    least, most = _decode_range(pair.prefill, spec)
    return pair.prefill in _prefill_range(spec) and least <= pair.decode <= most


def _prefill_range(spec: ScalingSpec) -> range:
    bounds = spec.prefill or Bounds(0, 0)
    return range(bounds.least, bounds.most + 1)


def _decode_range(prefill: int, spec: ScalingSpec) -> tuple[int, int]:
    """Fewest and most decode pods beside so many prefill pods."""
    least, most = spec.decode.least, spec.decode.most
    if spec.gpu_budget is not None:
        taken = gpus(Pair(prefill, 0), spec)
        most = min(most, (spec.gpu_budget - taken) // spec.decode.gpus)
    if spec.prefill is not None:
        if spec.least_ratio > 0:
            most = min(most, math.floor(prefill / spec.least_ratio))
        if spec.most_ratio is not None:
            least = max(least, math.ceil(prefill / spec.most_ratio))
    return least, most


def _allowed(wanted: Pair, spec: ScalingSpec) -> Iterator[Pair]:
    """For every number of prefill pods the number of decode pods that is nearest to the wanted."""
    for prefill in _prefill_range(spec):
        least, most = _decode_range(prefill, spec)
        if least <= most:
            yield Pair(prefill, min(max(wanted.decode, least), most))
