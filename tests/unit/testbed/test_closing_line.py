from __future__ import annotations

from tests.run import Tally

WELL = {"ruff check": True, "mypy --strict": True}


def test_tests_are_counted_whatever_else_was_checked() -> None:
    assert Tally(passed=3, skipped=1, checks=WELL).closing() == "3 passed, 0 failed, 1 skipped"


def test_a_run_without_tests_says_what_was_checked() -> None:
    assert Tally(checks=WELL).closing() == "ruff check, mypy --strict: nothing is wrong"


def test_a_run_without_tests_says_which_check_found_something() -> None:
    tally = Tally(checks=WELL | {"mypy --strict": False}, broken=["lint"])
    assert tally.closing() == "mypy --strict: something is wrong, see above"
    assert tally.failures == 1


def test_a_stage_that_broke_without_a_test_is_a_failure() -> None:
    assert Tally(passed=2, broken=["e2e"]).closing() == "2 passed, 1 failed, 0 skipped"
    assert Tally(checks=WELL, broken=["prepare"]).closing() == "0 passed, 1 failed, 0 skipped"
