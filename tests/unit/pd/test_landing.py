from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from oasis_runtime.pd.landing import Region, RegionAllocator


def test_an_exposed_region_cannot_be_released() -> None:
    regions = RegionAllocator(8192)
    region = regions.allocate(10, "peer")
    assert region is not None
    with pytest.raises(ValueError, match="is exposed"):
        regions.release(region)


def test_a_quarantined_region_is_free_once_its_transfer_is_over() -> None:
    regions = RegionAllocator(4096)
    region = regions.allocate(4096, "peer")
    assert region is not None
    regions.quarantine(region)
    assert regions.quarantined == 4096
    assert regions.allocate(1, "peer") is None
    assert regions.land(region) is False
    assert regions.quarantined == 0
    assert regions.allocate(4096, "peer") is not None


def test_a_peer_that_is_gone_frees_what_it_could_reach_but_not_what_had_landed() -> None:
    regions = RegionAllocator(4 * 4096)
    landed = regions.allocate(4096, "gone")
    exposed = regions.allocate(4096, "gone")
    quarantined = regions.allocate(4096, "gone")
    other = regions.allocate(4096, "other")
    assert landed is not None
    assert exposed is not None
    assert quarantined is not None
    assert other is not None
    assert regions.land(landed)
    regions.quarantine(quarantined)
    regions.peer_gone("gone")
    assert regions.used == 2 * 4096
    regions.release(landed)
    assert regions.land(other)


def test_a_region_is_given_back_once() -> None:
    regions = RegionAllocator(4096)
    region = regions.allocate(1, "peer")
    assert region is not None
    regions.land(region)
    regions.release(region)
    with pytest.raises(ValueError, match="not allocated"):
        regions.release(region)


@pytest.mark.parametrize("nbytes", [0, -1, 8193])
def test_what_can_never_fit_is_an_error(nbytes: int) -> None:
    with pytest.raises(ValueError, match="bytes"):
        RegionAllocator(8192).allocate(nbytes, "peer")


CAPACITY = 40 * 64


class Regions(RuleBasedStateMachine):
    """Compared with a list of bytes, each free, exposed to a peer, quarantined or landed."""

    @initialize()
    def start(self) -> None:
        self.regions = RegionAllocator(CAPACITY, alignment=64)
        self.exposed: dict[Region, str] = {}
        self.quarantined: dict[Region, str] = {}
        self.landed: list[Region] = []

    @rule(nbytes=st.integers(1, CAPACITY), peer=st.sampled_from("ab"))
    def allocate(self, nbytes: int, peer: str) -> None:
        region = self.regions.allocate(nbytes, peer)
        if region is None:
            assert self.largest_gap() < -(-nbytes // 64) * 64
        else:
            assert region.nbytes == nbytes
            self.exposed[region] = peer

    @rule(data=st.data())
    def land(self, data: Any) -> None:
        known = [*self.exposed, *self.quarantined]
        if not known:
            return
        region = data.draw(st.sampled_from(known))
        assert self.regions.land(region) == (region in self.exposed)
        if region in self.exposed:
            self.landed.append(region)
        self.exposed.pop(region, None)
        self.quarantined.pop(region, None)

    @rule(data=st.data())
    def quarantine(self, data: Any) -> None:
        if self.exposed:
            region = data.draw(st.sampled_from(list(self.exposed)))
            self.regions.quarantine(region)
            self.quarantined[region] = self.exposed.pop(region)

    @rule(data=st.data())
    def release(self, data: Any) -> None:
        if self.landed:
            region = data.draw(st.sampled_from(self.landed))
            self.landed.remove(region)
            self.regions.release(region)

    @rule(peer=st.sampled_from("ab"))
    def peer_gone(self, peer: str) -> None:
        self.regions.peer_gone(peer)
        self.exposed = {r: p for r, p in self.exposed.items() if p != peer}
        self.quarantined = {r: p for r, p in self.quarantined.items() if p != peer}

    def taken(self) -> list[Region]:
        return sorted(
            [*self.exposed, *self.quarantined, *self.landed], key=lambda region: region.offset
        )

    def largest_gap(self) -> int:
        end, largest = 0, 0
        for region in self.taken():
            largest = max(largest, region.offset - end)
            end = region.offset + -(-region.nbytes // 64) * 64
        return max(largest, CAPACITY - end)

    @invariant()
    def regions_do_not_overlap_and_are_all_accounted_for(self) -> None:
        end, spans = 0, 0
        for region in self.taken():
            assert region.offset >= end
            assert region.offset % 64 == 0
            end = region.offset + region.nbytes
            spans += -(-region.nbytes // 64) * 64
        assert end <= CAPACITY
        assert self.regions.used == spans
        assert self.regions.quarantined == sum(
            -(-region.nbytes // 64) * 64 for region in self.quarantined
        )


Regions.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestRegions = Regions.TestCase
