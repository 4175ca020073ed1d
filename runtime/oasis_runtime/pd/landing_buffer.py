"""The reader's landing memory: regions of it are written by owners and read by the engine."""

from __future__ import annotations

from collections.abc import Callable

from oasis_runtime.pd.landing import Region, RegionAllocator
from oasis_runtime.pd.memory import RegisteredMemory
from oasis_runtime.pd.types import Bytes

GiveBack = Callable[[Callable[[], None]], None]
"""Has the transfer thread call the argument; for the engine's thread."""


class Claim:
    """The engine's hold on a part of a landed region. Called once, it gives the part back."""

    def __init__(self, share: Callable[[], None], give_back: GiveBack) -> None:
        self._share: Callable[[], None] | None = share
        self._give_back = give_back

    def __call__(self) -> None:
        """Raises ValueError the second time: the memory may be somebody else's by then."""
        share, self._share = self._share, None
        if share is None:
            raise ValueError("these pages have already been given back")
        self._give_back(share)


class LandingBuffer:
    """Memory and its regions, shared by all links of a reader. For the transfer thread."""

    def __init__(self, nbytes: int, give_back: GiveBack) -> None:
        self.memory = RegisteredMemory(nbytes)
        self.regions = RegionAllocator(nbytes)
        self._give_back = give_back

    def view(self, region: Region) -> Bytes:
        return self.memory.view[region.offset : region.offset + region.nbytes]

    def address(self, region: Region) -> int:
        return self.memory.address + region.offset

    def claims(self, region: Region, count: int) -> list[Claim]:
        """``count`` claims on a landed region, which is freed when all have been given back."""
        left = count

        def share() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self.regions.release(region)

        return [Claim(share, self._give_back) for _ in range(count)]
