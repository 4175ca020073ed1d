from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasis_runtime.contract import DRAIN_QUIET_SECONDS, DRAIN_SETTLE_SECONDS, Metric, Role
from oasis_runtime.serve.drain import (
    ANSWERED,
    RUNNING,
    Drain,
    Samples,
    Seen,
    addresses,
    drain,
    look,
    main,
    parse,
    serving_host,
)

LIMIT = 600.0
EXPOSITIONS = Path(__file__).parents[1] / "chart" / "expositions"
"""As real engines wrote them."""
IDLE: Samples = {ANSWERED: 7.0}
BUSY: Samples = {RUNNING[0]: 1.0, ANSWERED: 7.0}
QUEUED: Samples = {RUNNING[1]: 1.0, ANSWERED: 7.0}
EXPORTING: Samples = {Metric.EXPORTS: 2.0, ANSWERED: 7.0}
ROLES = (Role.BOTH, Role.PREFILL, Role.DECODE)


def seconds(role: Role, seen: Callable[[float], Seen], limit: float = LIMIT) -> float:
    """How long an engine stays that shows ``seen`` of the time since the pod began to end."""
    now = 0.0

    def sleep(duration: float) -> None:
        nonlocal now
        now += duration

    drain(Drain(role, 0.0, limit), lambda: seen(now), lambda: now, sleep)
    return now


def until(end: float, before: Seen, after: Seen) -> Callable[[float], Seen]:
    return lambda now: before if now < end else after


@pytest.mark.parametrize("role", ROLES)
def test_an_idle_engine_stays_until_the_routers_know(role: Role) -> None:
    assert DRAIN_SETTLE_SECONDS <= seconds(role, lambda _: Seen(IDLE)) <= DRAIN_SETTLE_SECONDS + 1


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("samples", [BUSY, QUEUED, EXPORTING], ids=["runs", "waits", "exports"])
def test_it_stays_while_there_is_something_to_do(role: Role, samples: Samples) -> None:
    assert 40 <= seconds(role, until(40, Seen(samples), Seen(IDLE))) <= 41


@pytest.mark.parametrize("role", ROLES)
def test_it_stays_no_longer_than_its_limit(role: Role) -> None:
    assert seconds(role, lambda _: Seen(BUSY), limit=20) == 20


@pytest.mark.parametrize("role", ROLES)
def test_one_that_does_not_listen_has_nothing_to_finish(role: Role) -> None:
    assert seconds(role, lambda _: Seen(None, listening=False)) == 0


@pytest.mark.parametrize("role", ROLES)
def test_one_that_is_too_busy_to_answer_is_not_taken_for_idle(role: Role) -> None:
    assert seconds(role, until(50, Seen(None), Seen(IDLE))) >= 50


@pytest.mark.parametrize("role", ROLES)
def test_one_that_hangs_is_not_waited_for(role: Role) -> None:
    assert 60 <= seconds(role, lambda _: Seen(None)) <= 61
    assert 90 <= seconds(role, until(30, Seen(BUSY), Seen(None))) <= 91


def test_a_decode_engine_stays_while_a_prompt_is_prefilled_that_may_be_for_it() -> None:
    busy = until(12, Seen(IDLE, [IDLE, BUSY]), Seen(IDLE, [IDLE, IDLE]))
    assert 12 <= seconds(Role.DECODE, busy) <= 13


def test_prefill_engines_that_never_rest_hold_it_for_so_long_only() -> None:
    found = seconds(Role.DECODE, lambda _: Seen(IDLE, [BUSY]))
    assert DRAIN_QUIET_SECONDS <= found <= DRAIN_QUIET_SECONDS + DRAIN_SETTLE_SECONDS


def test_each_request_that_arrives_begins_the_wait_anew() -> None:
    def seen(now: float) -> Seen:
        # Answered between two looks: never seen running.
        return Seen({ANSWERED: 7.0 if now < 25 else 8.0}, [BUSY])

    assert seconds(Role.DECODE, seen) >= 25 + DRAIN_QUIET_SECONDS


def test_what_cannot_be_asked_counts_as_busy() -> None:
    assert seconds(Role.DECODE, lambda _: Seen(IDLE, [None])) >= DRAIN_QUIET_SECONDS


def test_prefills_that_rested_before_the_routers_knew_prove_nothing() -> None:
    def seen(now: float) -> Seen:
        return Seen(IDLE, [IDLE if now < DRAIN_SETTLE_SECONDS or now > 20 else BUSY])

    assert seconds(Role.DECODE, seen) > 20


@given(st.lists(st.floats(0, 60), max_size=6), st.floats(0.5, 20))
def test_no_request_that_comes_within_the_quiet_time_is_lost(
    arrivals: list[float], length: float
) -> None:
    """Whatever arrives less than the quiet time after the one before it is finished."""
    ends, last = [], 0.0
    for arrival in sorted(arrivals):
        if arrival - last >= DRAIN_QUIET_SECONDS - 1:
            break
        last = arrival + length
        ends.append((arrival, last))

    def seen(now: float) -> Seen:
        running = sum(start <= now < end for start, end in ends)
        return Seen({RUNNING[0]: running, ANSWERED: sum(now >= end for _, end in ends)}, [BUSY])

    assert seconds(Role.DECODE, seen) >= max((end for _, end in ends), default=0.0)


def test_metrics_are_summed_over_their_labels() -> None:
    text = (
        "# HELP vllm:num_requests_running Number of requests.\n"
        'vllm:num_requests_running{engine="0",model_name="a b"} 2.0\n'
        'vllm:num_requests_running{engine="1",model_name="a b"} 1.0\n'
        'vllm:num_requests_running_total{engine="1"} 9.0\n'
        "oasis_exports_outstanding 4.0\n"
    )
    found = parse(text, [*RUNNING, Metric.EXPORTS])
    assert found == {RUNNING[0]: 3.0, Metric.EXPORTS: 4.0}


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_real_engines_publish_what_it_looks_at(role: str) -> None:
    names = {*RUNNING, ANSWERED, Metric.EXPORTS}
    assert parse((EXPOSITIONS / f"{role}.prom").read_text(), names).keys() == names


@contextmanager
def engine(text: str) -> Iterator[int]:
    """Something that publishes metrics; its port."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_an_engine_is_known_by_its_metrics() -> None:
    with engine(f"{RUNNING[0]} 1.0\n") as port:
        seen = look(port, None)
        assert seen.listening
        assert not seen.idle


def test_prefill_engines_are_all_that_a_name_means() -> None:
    with engine(f"{RUNNING[0]} 1.0\n") as port:
        assert not look(port, "localhost").none_prefills


@pytest.mark.parametrize(("answer", "none"), [(socket.EAI_NONAME, True), (socket.EAI_AGAIN, False)])
def test_a_name_that_is_gone_means_none_and_a_silent_name_server_nothing(
    monkeypatch: pytest.MonkeyPatch, answer: int, none: bool
) -> None:
    def resolve(*_: object, **__: object) -> None:
        raise socket.gaierror(answer, "said the name server")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert (addresses_of("chat-prefill.team.svc") == []) is none


def addresses_of(name: str) -> list[str] | None:
    try:
        return addresses(name, 8000)
    except OSError:
        return None


def test_a_port_that_refuses_is_told_from_one_that_is_slow() -> None:
    with engine("") as port:
        pass
    assert not look(port, None).listening


def test_pods_of_an_engine_on_several_nodes_look_at_the_one_that_answers() -> None:
    leader = {"OASIS_NODE_LEADER": "large-0.large.team"}
    assert serving_host({**leader, "OASIS_NODE_RANK": "1"}) == "large-0.large.team"
    assert serving_host({**leader, "OASIS_NODE_RANK": "0"}) == "127.0.0.1"
    assert serving_host({}) == "127.0.0.1"
    with engine(f"{RUNNING[0]} 1.0\n") as port:
        assert not look(port, None, "localhost").idle


@pytest.mark.parametrize(("answer", "gone"), [(socket.EAI_NONAME, True), (socket.EAI_AGAIN, False)])
def test_an_engine_whose_name_is_gone_has_ended(
    monkeypatch: pytest.MonkeyPatch, answer: int, gone: bool
) -> None:
    def resolve(*_: object, **__: object) -> None:
        raise socket.gaierror(answer, "said the name server")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    seen = look(8000, None, "large-0.large.team")
    assert seen.listening is not gone
    assert not seen.idle


def test_it_returns_at_once_where_no_engine_serves() -> None:
    with engine("") as port:
        pass
    main(["--role", "decode", "--port", str(port), "--limit", "60"])
