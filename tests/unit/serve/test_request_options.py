"""Per-request options: an object, or its JSON text."""

from __future__ import annotations

import pytest

from oasis_runtime.contract import RequestOptions
from oasis_runtime.serve.request_options import parse_request_options


@pytest.mark.parametrize(
    "value",
    [{"mode": "dense", "budget_tokens": 512}, '{"mode": "dense", "budget_tokens": 512}'],
    ids=["object", "text"],
)
def test_an_object_and_its_text_mean_the_same(value: object) -> None:
    assert parse_request_options(value) == RequestOptions(mode="dense", budget_tokens=512)


def test_an_empty_object_overrides_nothing() -> None:
    assert parse_request_options({}) == RequestOptions()


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("dense", 'oasis is not JSON; write it like {"mode": "dense"}'),
        ("[1]", 'oasis must be an object such as {"mode": "dense"}, or its JSON text'),
        (3, 'oasis must be an object such as {"mode": "dense"}, or its JSON text'),
        ({"mode": "fast"}, "oasis.mode must be 'auto', 'sparse' or 'dense', not 'fast'"),
        ({"budget_tokens": 1}, "oasis.budget_tokens must be greater than or equal to 64, not 1"),
        ({"budget": 64}, "oasis.budget is not a setting; did you mean budget_tokens?"),
        ("[" * 100000, 'oasis is not JSON; write it like {"mode": "dense"}'),
    ],
)
def test_wrong_options_get_one_sentence(value: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=r".+") as caught:
        parse_request_options(value)
    assert str(caught.value) == sentence
