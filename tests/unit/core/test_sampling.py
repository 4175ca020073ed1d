"""A few samples are spread over all layers; many visit every head equally often."""

from __future__ import annotations

from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

from oasis_runtime.core.sampling import HeadWalk

LAYERS, HEADS = st.integers(1, 80), st.integers(1, 12)


@given(LAYERS, HEADS, st.integers(1, 3))
def test_every_head_is_visited_once_a_round(layers: int, heads: int, rounds: int) -> None:
    walk = HeadWalk(layers, heads)
    seen = Counter(walk.take() for _ in range(rounds * layers * heads))
    assert seen == {(layer, head): rounds for layer in range(layers) for head in range(heads)}


@given(st.integers(12, 80), HEADS, st.integers(0, 300))
@example(layers=15, heads=1, before=0)
def test_any_eight_samples_in_a_row_reach_every_quarter_of_the_layers(
    layers: int, heads: int, before: int
) -> None:
    walk = HeadWalk(layers, heads)
    for _ in range(before):
        walk.take()
    assert {4 * walk.take()[0] // layers for _ in range(8)} == {0, 1, 2, 3}
