from __future__ import annotations

from oasis_runtime.core.statistics import FALLBACK_REASONS
from tests.unit.core.reasons import fallback_reasons


def test_the_reasons_to_decode_densely_are_all_that_the_engine_gives() -> None:
    compared = {"dense"}  # the mode that a return asks for
    assert set(FALLBACK_REASONS) == fallback_reasons() - compared
