from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasis_operator.api.quantity import parse_quantity, quantity_bytes, same_quantity

SUFFIXES = {
    "m": "0.001", "": "1", "k": "1000", "M": "1e6", "G": "1e9", "T": "1e12",
    "Ki": "1024", "Mi": "1048576", "Gi": "1073741824", "e3": "1000", "E-2": "0.01",
}  # fmt: skip


@given(st.integers(0, 10**9), st.sampled_from(sorted(SUFFIXES)))
def test_a_suffix_multiplies_the_number(number: int, suffix: str) -> None:
    assert parse_quantity(f"{number}{suffix}") == number * Decimal(SUFFIXES[suffix])


@given(st.text(alphabet=st.characters(exclude_characters="0123456789")))
def test_text_without_a_digit_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="4Gi"):
        parse_quantity(text)


def test_an_absurd_exponent_is_refused_and_not_calculated() -> None:
    with pytest.raises(ValueError, match="exponent"):
        parse_quantity("1e999999999")


@pytest.mark.parametrize("text", ["", "1Q", "1 Gi", "Gi", "1GiB", "--1", "1e"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        parse_quantity(text)


def test_part_of_a_byte_counts_as_a_byte() -> None:
    assert quantity_bytes("1500m") == 2


@pytest.mark.parametrize(
    ("one", "other"), [("1000m", "1"), ("1Gi", 1073741824), ("0.5", "500m"), ("2", 2)]
)
def test_spellings_of_one_quantity_are_the_same(one: int | str, other: int | str) -> None:
    assert same_quantity(one, other)


@pytest.mark.parametrize(("one", "other"), [("1G", "1Gi"), ("a", "a"), ("1", None), ("1", ["1"])])
def test_other_things_are_not_the_same_quantity(one: object, other: object) -> None:
    assert not same_quantity(one, other)
