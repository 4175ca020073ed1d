from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasis_runtime.pd.lease import HeldLeases, LeaseTable


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_an_export_may_be_read_until_its_lease_expires(clock: Clock) -> None:
    table = LeaseTable(30.0, clock)
    table.grant("a", 1)
    clock.now += 29.9
    assert table.refusal("a", 1) is None
    clock.now += 0.1
    assert table.refusal("a", 1) == "the lease of request a has expired"


def test_an_expired_lease_cannot_be_extended(clock: Clock) -> None:
    table = LeaseTable(30.0, clock)
    table.grant("a", 1)
    clock.now += 30
    assert not table.extend("a", 1)


def test_extending_counts_from_now(clock: Clock) -> None:
    table = LeaseTable(30.0, clock)
    table.grant("a", 1)
    clock.now += 29
    assert table.extend("a", 1)
    clock.now += 29
    assert table.expire() == []
    clock.now += 1
    assert table.expire() == [("a", 1)]
    assert len(table) == 0


def test_another_generation_is_neither_read_nor_extended_nor_ended(clock: Clock) -> None:
    table = LeaseTable(30.0, clock)
    table.grant("a", 2)
    assert table.refusal("a", 1) == "the export of request a is of generation 2, not 1"
    assert not table.extend("a", 1)
    assert not table.end("a", 1)
    assert table.end("a", 2)
    assert table.refusal("a", 2) == "there is no export of request a"


def test_a_request_has_one_lease(clock: Clock) -> None:
    table = LeaseTable(30.0, clock)
    table.grant("a", 1)
    with pytest.raises(ValueError, match="already exported"):
        table.grant("a", 2)


steps = st.lists(
    st.tuples(
        st.sampled_from(["grant", "extend", "end", "expire", "wait"]),
        st.sampled_from("abc"),
        st.integers(1, 3),
        st.floats(0, 20),
    ),
    max_size=60,
)


@given(steps)
def test_every_lease_ends_exactly_once_and_never_later_than_its_term(
    history: list[tuple[str, str, int, float]],
) -> None:
    clock = Clock()
    table = LeaseTable(30.0, clock)
    model: dict[str, tuple[int, float]] = {}
    for action, key, generation, wait in history:
        live = key in model and model[key][0] == generation and clock.now < model[key][1]
        match action:
            case "grant" if key not in model:
                table.grant(key, generation)
                model[key] = (generation, clock.now + 30)
            case "extend":
                assert table.extend(key, generation) == live
                if live:
                    model[key] = (generation, clock.now + 30)
            case "end":
                known = key in model and model[key][0] == generation
                assert table.end(key, generation) == known
                if known:
                    del model[key]
            case "expire":
                over = {(k, g) for k, (g, until) in model.items() if clock.now >= until}
                assert set(table.expire()) == over
                for k, _ in over:
                    del model[k]
            case "wait":
                clock.now += wait
        for k, (g, until) in model.items():
            assert (table.refusal(k, g) is None) == (clock.now < until)
        assert len(table) == len(model)


def test_a_reader_counts_from_when_it_asked_not_from_the_answer(clock: Clock) -> None:
    held = HeldLeases(30.0, 3.0, clock)
    sent = clock.now
    clock.now += 20
    held.hold("a", sent)
    clock.now += 6.9
    assert held.lost() == []
    clock.now += 0.1
    assert held.lost() == ["a"]


def test_an_answer_to_an_older_question_does_not_shorten_a_lease(clock: Clock) -> None:
    held = HeldLeases(30.0, 3.0, clock)
    held.hold("a", 100.0)
    held.acknowledge("a", 110.0)
    held.acknowledge("a", 105.0)
    clock.now = 136.9
    assert held.lost() == []


def test_an_answer_after_a_drop_holds_nothing(clock: Clock) -> None:
    held = HeldLeases(30.0, 3.0, clock)
    held.hold("a", 100.0)
    held.drop("a")
    held.acknowledge("a", 101.0)
    assert len(held) == 0


@given(
    st.lists(st.tuples(st.floats(0.01, 40), st.floats(0, 5), st.booleans()), max_size=30),
    st.floats(0, 5),
)
def test_a_reader_never_outlives_its_owner(
    rounds: list[tuple[float, float, bool]], first_delay: float
) -> None:
    """Whatever travels how long, a reader that holds a lease finds it valid at the owner."""
    clock = Clock()
    owner, reader = LeaseTable(30.0, clock), HeldLeases(30.0, 3.0, clock)
    owner.grant("a", 1)
    sent = clock.now
    clock.now += first_delay
    owner.extend("a", 1)
    reader.hold("a", sent)
    for pause, delay, answered in rounds:
        sent = clock.now
        clock.now += delay
        extended = owner.extend("a", 1)
        if extended and answered:
            reader.acknowledge("a", sent)
        clock.now += pause
        if reader.lost():
            reader.drop("a")
        if len(reader):
            assert owner.refusal("a", 1) is None
