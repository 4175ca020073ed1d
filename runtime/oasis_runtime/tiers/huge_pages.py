"""Zeroed memory that the kernel may back with huge pages.

The pages of a selection lie anywhere in the fast tier, so with 4 KiB pages nearly every block costs
the attention kernel two misses of the address cache.
"""

from __future__ import annotations

import contextlib
import mmap

import numpy as np
import numpy.typing as npt

HUGE_PAGE_BYTES = 2 << 20


def zeros(size: int) -> npt.NDArray[np.uint8]:
    """``size`` bytes that begin at a huge page; small pages where there are no others."""
    region = mmap.mmap(-1, size + HUGE_PAGE_BYTES)
    with contextlib.suppress(OSError):  # a kernel that was built without huge pages
        region.madvise(mmap.MADV_HUGEPAGE)
    raw = np.frombuffer(region, np.uint8)
    first = -raw.ctypes.data % HUGE_PAGE_BYTES
    return raw[first : first + size]
