"""What a decode engine tells vLLM about its loads, event by event, against a played transfer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pytest
import torch

from oasis_runtime.contract import EngineConfig, Metric
from oasis_runtime.core.admission import Admission
from oasis_runtime.core.requests import Selection
from oasis_runtime.pd.importer import Importer
from oasis_runtime.pd.types import Admitted, Event, Lost, Mode, Peer
from oasis_runtime.vllm.messages import LoadOrder, Results, Source
from oasis_runtime.vllm.metrics import key
from oasis_runtime.vllm.session import Session, Tiers
from oasis_runtime.vllm.transfer import Reader
from tests.unit.core.world import BLOCK, World

TOKENS = 3 * BLOCK + 5
BLOCKS = (7, 3, 9, 5)
SOURCE = Source("127.0.0.1", 8600, "theirs", 1, b"of a prompt")


@dataclass
class PlayedImporter:
    """Says what the test puts into ``events``."""

    events: list[Event] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    asked: list[tuple[str, str, str, Mode]] = field(default_factory=list)

    def admit(
        self,
        request_id: str,
        peer: Peer,
        remote: str,
        generation: int,
        digest: bytes,
        mode: Mode = Mode.HOT,
    ) -> None:
        assert digest == SOURCE.digest
        if generation < 0:
            raise ValueError("no such generation")
        self.asked.append((request_id, str(peer), remote, mode))

    def poll(self) -> Sequence[Event]:
        events, self.events = self.events, []
        return events

    def release(self, request_id: str) -> None:
        self.released.append(request_id)

    def counters(self) -> Any:
        return _Nothing()


@dataclass(frozen=True)
class _Nothing:
    stale_pages: int = 0
    refused: int = 0
    lost: int = 0
    bytes_per_second: int = 0


@dataclass
class Bed:
    world: World
    importer: PlayedImporter
    reader: Reader

    def load(self, generation: int = 1, whole: bool = False) -> None:
        source = replace(SOURCE, generation=generation)
        self.reader.load(LoadOrder("r", BLOCKS, 1, TOKENS, source, whole))

    def admitted(self, tokens: int = TOKENS, window: int = 2) -> None:
        g = self.world.geometry
        nothing = np.zeros((g.layers, g.heads, 0), np.int32)
        count = np.zeros((g.layers, g.heads), np.int32)
        blocks = np.arange(g.blocks_for(tokens), dtype=np.int32)
        admission = Admission.of(
            self.world.tables, blocks, Selection(nothing, count, window, tokens)
        )
        self.importer.events.append(Admitted("r", tokens, admission.encode(), 0))

    def lost(self) -> None:
        self.importer.events.append(Lost("r", "its prefill engine is gone"))

    def poll(self, *scheduled: str) -> Results:
        results = Results()
        self.reader.poll(results, scheduled)
        return results


@pytest.fixture
def bed() -> Iterator[Bed]:
    world = World(400)
    session = Session(
        EngineConfig(model="m"), world.engine, Tiers((), torch.zeros(0)), cast(Any, None)
    )
    importer = PlayedImporter()
    yield Bed(world, importer, Reader(session, cast(Importer, importer), rank=0))
    world.engine.requests.forget("r")
    world.close()


@pytest.mark.parametrize(("whole", "mode"), [(True, Mode.ALL), (False, Mode.HOT)])
def test_a_load_that_is_complete_is_received(bed: Bed, whole: bool, mode: Mode) -> None:
    bed.load(whole=whole)
    assert bed.importer.asked == [("r", "127.0.0.1:8600", "theirs", mode)]
    assert bed.reader.waiting
    bed.admitted()
    assert bed.poll() == Results(received={"r"})
    assert not bed.reader.waiting
    assert bed.importer.released == (["r"] if whole else [])
    assert bed.world.engine.requests.is_remote("r") is not whole


def test_a_load_whose_peer_goes_is_failed(bed: Bed) -> None:
    bed.load()
    bed.lost()
    assert bed.poll() == Results(received={"r"}, failed={"r"})
    assert not bed.reader.waiting


def test_a_peer_that_goes_after_the_load_is_reported_in_a_step_that_the_request_is_in(
    bed: Bed,
) -> None:
    """vLLM looks for the block among the requests of the step and takes nothing back later."""
    bed.load()
    bed.admitted()
    bed.poll()
    bed.lost()
    assert bed.poll("another") == Results()
    assert not bed.world.engine.requests.is_remote("r")
    assert bed.poll("r") == Results(invalid_blocks={BLOCKS[1]})
    assert bed.poll("r") == Results()


def test_a_peer_that_goes_is_not_reported_for_a_request_that_ended(bed: Bed) -> None:
    bed.load()
    bed.admitted()
    bed.poll()
    bed.lost()
    bed.poll()
    bed.reader.end("r")
    assert bed.poll("r") == Results()


def test_a_request_that_ends_while_it_is_loaded_is_received_then_released(bed: Bed) -> None:
    """vLLM keeps its blocks until then, because pages may still be on their way into them."""
    bed.load()
    bed.reader.end("r")
    assert bed.poll() == Results()
    bed.admitted()
    assert bed.poll() == Results(received={"r"})
    assert bed.importer.released == ["r"]
    assert not bed.world.engine.requests.is_remote("r")


def test_a_request_that_ended_while_it_was_loaded_does_not_fail_with_its_peer(bed: Bed) -> None:
    bed.load()
    bed.reader.end("r")
    bed.lost()
    assert bed.poll() == Results(received={"r"})


@pytest.mark.parametrize(
    ("tokens", "window"), [(TOKENS - 1, 2), (TOKENS + BLOCK, 2), (TOKENS, 9)], ids=str
)
def test_an_admission_that_is_not_of_this_prompt_is_released_and_failed(
    bed: Bed, tokens: int, window: int
) -> None:
    bed.load()
    bed.admitted(tokens, window)
    assert bed.poll() == Results(received={"r"}, failed={"r"})
    assert bed.importer.released == ["r"]
    assert bed.reader.stats() == {key(Metric.REFUSED_TRANSFERS, "reader"): 1}
    assert bed.reader.stats() == {}


def test_what_no_prefill_engine_can_have_given_is_failed(bed: Bed) -> None:
    bed.load(generation=-1)
    assert bed.poll() == Results(received={"r"}, failed={"r"})
    assert bed.reader.stats() == {key(Metric.REFUSED_TRANSFERS, "reader"): 1}


def test_an_export_that_nobody_needs_is_released_at_its_peer(bed: Bed) -> None:
    bed.reader.decline(SOURCE)
    ((name, _, remote, _),) = bed.importer.asked
    assert remote == "theirs"
    assert bed.importer.released == [name]
    assert bed.poll() == Results()
