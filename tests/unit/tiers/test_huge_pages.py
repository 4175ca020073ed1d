"""Memory for the fast tier."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from oasis_runtime.tiers.huge_pages import HUGE_PAGE_BYTES, zeros


def advised(address: int) -> bool:
    """Whether the kernel knows the mapping at ``address`` as one for huge pages."""
    mapping = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if bounds := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            mapping = int(bounds[1], 16) <= address < int(bounds[2], 16)
        elif mapping and line.startswith("VmFlags:"):
            return " hg" in line
    raise AssertionError("the address is not mapped")


@pytest.mark.parametrize("size", [1, 4096, 3 * HUGE_PAGE_BYTES + 5])
def test_memory_is_zeroed_writable_and_begins_at_a_huge_page(size: int) -> None:
    memory = zeros(size)
    assert memory.shape == (size,)
    assert memory.ctypes.data % HUGE_PAGE_BYTES == 0
    assert not memory.any()
    memory[:] = 7
    assert int(memory.sum()) == 7 * size


def test_the_kernel_is_asked_for_huge_pages() -> None:
    assert advised(zeros(2 * HUGE_PAGE_BYTES).ctypes.data)


def test_a_view_keeps_the_memory_alive() -> None:
    view = zeros(HUGE_PAGE_BYTES)[1:].reshape(-1, 1)
    view[:] = 1
    np.testing.assert_array_equal(view[-1], [1])
