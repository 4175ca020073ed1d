from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from oasis_operator.topology.backoff import FIRST_PAUSE, LONGEST_PAUSE, retry_at

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
AGES = st.lists(st.integers(0, 7200).map(lambda seconds: timedelta(seconds=seconds)), max_size=30)


def ago(*seconds: float) -> list[datetime]:
    return [NOW - timedelta(seconds=number) for number in seconds]


def test_nothing_refused_is_no_pause() -> None:
    assert retry_at([], NOW) is None


def test_the_first_refusal_is_followed_by_the_first_pause() -> None:
    assert retry_at(ago(5), NOW) == NOW - timedelta(seconds=5) + FIRST_PAUSE
    assert retry_at(ago(FIRST_PAUSE.total_seconds()), NOW) is None


def test_all_pods_of_one_try_count_once() -> None:
    assert retry_at(ago(5, 6, 7, 8, 9), NOW) == retry_at(ago(5), NOW)


def test_each_further_try_doubles_the_pause() -> None:
    assert retry_at(ago(0, 30, 90), NOW) == NOW + 4 * FIRST_PAUSE


def test_what_was_long_ago_is_forgotten() -> None:
    assert retry_at(ago(0, 4000, 5000), NOW) == NOW + FIRST_PAUSE


@given(AGES)
def test_a_pause_is_bounded_and_always_ends(ages: list[timedelta]) -> None:
    refused = [NOW - age for age in ages]
    end = retry_at(refused, NOW)
    if end is not None:
        assert NOW < end <= max(refused) + LONGEST_PAUSE
        assert retry_at(refused, end) is None


@given(AGES, st.integers(0, 7200))
def test_an_earlier_refusal_never_shortens_the_pause(ages: list[timedelta], more: int) -> None:
    refused = [NOW - age for age in ages]
    end = retry_at(refused, NOW)
    earlier = min(refused, default=NOW) - timedelta(seconds=more)
    longer = retry_at([*refused, earlier], NOW)
    assert end is None or (longer is not None and longer >= end)
