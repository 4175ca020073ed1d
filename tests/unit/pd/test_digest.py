from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from oasis_runtime.pd.digest import DIGEST_BYTES, prompt_digest

prompts = st.lists(st.integers(0, 1 << 20), max_size=40)
others = st.lists(st.tuples(st.text(), st.text() | st.binary() | st.integers()), max_size=3)


@given(prompts, others, prompts, others)
def test_digests_are_equal_when_tokens_and_the_rest_are(
    left: list[int], left_others: list[object], right: list[int], right_others: list[object]
) -> None:
    same = (left, left_others) == (right, right_others)
    digest = prompt_digest(left, left_others)
    assert (digest == prompt_digest(right, right_others)) is same
    assert digest == prompt_digest(tuple(left), tuple(left_others))
    assert len(digest) == DIGEST_BYTES


@given(prompts.filter(bool), st.data())
def test_one_other_token_makes_another_digest(prompt: list[int], data: st.DataObject) -> None:
    changed = list(prompt)
    changed[data.draw(st.integers(0, len(prompt) - 1))] += 1
    assert prompt_digest(changed) != prompt_digest(prompt)


def test_adapter_and_salt_make_another_digest() -> None:
    kinds = [
        (),
        (("lora", "a", "/a"),),
        (("lora", "a", "/b"),),
        (("cache_salt", "a"),),
        (("cache_salt", "\ud800"),),
    ]
    assert len({prompt_digest((1, 2), kind) for kind in kinds}) == len(kinds)


def test_a_long_prompt_costs_little() -> None:
    """Milliseconds would be a part of a step; the least of several, as the machine is shared."""
    prompt = list(range(100_000, 132_768))

    def seconds() -> float:
        began = time.perf_counter()
        prompt_digest(prompt)
        return time.perf_counter() - began

    assert min(seconds() for _ in range(20)) < 0.002
