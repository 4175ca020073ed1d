"""bfloat16 numbers in numpy, which has no type for them: uint16, the upper half of a float32."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

U16 = npt.NDArray[np.uint16]
F32 = npt.NDArray[np.float32]

ONE = np.uint16(0x3F80)


def widen(bits: U16) -> F32:
    """The same numbers as float32, any shape."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def round_up(numbers: F32) -> U16:
    """The least bfloat16 that is not below each of these float32 numbers, none of them negative."""
    bits = numbers.view(np.uint32).astype(np.uint64)
    return ((bits + 0xFFFF) >> 16).astype(np.uint16)
