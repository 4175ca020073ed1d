"""Prefill and decode as two real servers on one machine, their KV over the transfer library.

The decode engine's budget is 1,024 tokens, so that it takes prompts up to 2,304 tokens whole, and
of longer ones only the hot pages; a request may ask for the sparse path at any length.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from oasis_runtime.contract import (
    AuditConfig,
    Metric,
    Role,
    SelectionConfig,
    TierConfig,
    TransferConfig,
)
from oasis_runtime.vllm.metrics import LABEL_VALUES, SERIES
from tests.engine.configs import BLOCK, PAGE_BYTES, PAGES_A_BLOCK, engine_config
from tests.engine.inprocess.asks import Ask
from tests.engine.prompts import Prose
from tests.engine.servers import NAME, Pair, Server, body, free_port, tokens_of
from tests.engine.stock import Stock

BUDGET = 1024
WHOLE_UP_TO = 2 * (BUDGET + 64 + 64)
LEASE_SECONDS = 5.0
SOON_SECONDS = 3.0
"""For what takes a message between two engines and a report; less than a lease."""
REPORT_SECONDS = 20.0
SPARSE = {"vllm_xargs": {"oasis": {"mode": "sparse"}}}
"""The budget is over the prompts that ask for it, so that answers are exact."""


@pytest.fixture(scope="module")
def running(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pd")

    def server(role: Role, fast_bytes: int) -> Server:
        config = engine_config(
            model,
            served_model_name=NAME,
            role=role,
            port=free_port(),
            tiers=TierConfig(host_bytes=900 << 20, fast_bytes=fast_bytes),
            selection=SelectionConfig(budget_tokens=BUDGET),
            audit=AuditConfig(every_steps=4),
            transfer=TransferConfig(
                port=free_port(), lease_seconds=LEASE_SECONDS, heartbeat_seconds=1
            ),
        )
        return Server(config, folder)

    made = Pair(server(Role.PREFILL, 32 << 20), server(Role.DECODE, 400 << 20))
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def pair(running: Pair) -> Pair:
    """Both servers, whatever the test before did to them."""
    running.up()
    return running


def wait_until_released(pair: Pair, seconds: float = SOON_SECONDS) -> None:
    pair.prefill.wait_for(
        lambda m: m.value(Metric.EXPORTS) == 0, seconds, "the prefill engine still keeps KV"
    )


# ------------------------------------------------------------------ answers


def test_an_answer_over_whole_kv_is_stock_vllms(pair: Pair, stock: Stock, prose: Prose) -> None:
    ask = Ask(prose.passage(0, 1000), 40)
    expected = stock.ask(ask)
    before = pair.decode.metrics()
    assert [tokens_of(pair.ask(ask.prompt, 40))] == expected.tokens
    after = pair.decode.wait_for(
        lambda m: m.since(before).value(Metric.STEPS, mode="dense") >= 10, REPORT_SECONDS, "steps"
    )
    counted = after.since(before)
    sent = counted.value(Metric.TIER_BYTES, source="remote", reason="admission")
    dense = -(-1000 // BLOCK) * PAGES_A_BLOCK * PAGE_BYTES
    assert counted.value(Metric.DENSE_TRANSFER_BYTES) == dense
    assert dense <= sent < 1.1 * dense
    assert counted.value(Metric.STEPS, mode="sparse") == 0
    wait_until_released(pair)


@pytest.mark.parametrize("length", [20, 8 * BLOCK - 1, 8 * BLOCK, 8 * BLOCK + 1, 900])
def test_an_answer_over_hot_pages_is_stock_vllms(
    pair: Pair, stock: Stock, prose: Prose, length: int
) -> None:
    ask = Ask(prose.passage(1, length), 40)
    expected = stock.ask(ask)
    before = pair.decode.metrics()
    assert [tokens_of(pair.ask(ask.prompt, 40, **SPARSE))] == expected.tokens
    counted = pair.decode.metrics().since(before)
    assert counted.value(Metric.STEPS, mode="dense") == 0
    assert counted.value(Metric.REFUSED_TRANSFERS) == 0
    wait_until_released(pair)


def test_two_requests_at_the_same_time(pair: Pair, stock: Stock, prose: Prose) -> None:
    asks = [Ask(prose.passage(2, 600), 40), Ask(prose.passage(3, 750), 40)]
    expected = stock.ask(*asks)
    with ThreadPoolExecutor(2) as pool:
        answers = list(
            pool.map(lambda ask, more: pair.ask(ask.prompt, 40, **more), asks, [{}, SPARSE])
        )
    assert [tokens_of(answer) for answer in answers] == expected.tokens
    wait_until_released(pair)


def test_the_decode_engine_reuses_the_first_turn_and_loads_the_rest(
    pair: Pair, stock: Stock, prose: Prose
) -> None:
    """The first turn comes whole, so it is cached; of the second only new hot pages are loaded."""
    first = prose.passage(4, 20 * BLOCK)
    second = Ask((*first, *prose.passage(5, 5 * BLOCK + 7)), 40)
    expected = stock.ask(second)
    tokens_of(pair.ask(first, 2))
    before = pair.decode.metrics()
    assert [tokens_of(pair.ask(second.prompt, 40, **SPARSE))] == expected.tokens
    counted = pair.decode.metrics().since(before)
    assert counted.value("vllm:prefix_cache_hits_total") == 20 * BLOCK
    sent = counted.value(Metric.TIER_BYTES, source="remote", reason="admission")
    assert 0 < sent < 7.5 * PAGES_A_BLOCK * PAGE_BYTES
    wait_until_released(pair)


def test_a_long_prompt_moves_a_part_of_its_kv(pair: Pair, prose: Prose) -> None:
    prompt = prose.passage(10, 6000)
    before = pair.decode.metrics()
    assert len(tokens_of(pair.ask(prompt, 40))) == 40
    after = pair.decode.wait_for(
        lambda m: m.since(before).value(Metric.TIER_BYTES, reason="demand") > 0,
        REPORT_SECONDS,
        "no page was fetched on demand",
    )
    counted = after.since(before)

    def moved(reason: str) -> float:
        return counted.value(Metric.TIER_BYTES, source="remote", target="host", reason=reason)

    dense = counted.value(Metric.DENSE_TRANSFER_BYTES)
    assert dense == -(-6000 // BLOCK) * PAGES_A_BLOCK * PAGE_BYTES
    assert 0 < moved("admission") < dense / 4
    assert 0 < moved("demand") < dense - moved("admission")
    resident = counted.value(Metric.PAGES_RESIDENT) / counted.value(Metric.PAGES_SELECTED)
    assert resident > 0.9
    assert counted.value(Metric.STALE_READS) == 0
    assert counted.value(Metric.REFUSED_TRANSFERS) == 0
    assert counted.value(Metric.STEPS, mode="dense") == 0
    assert counted.mean(Metric.MASS_RECALL) > 0.3
    wait_until_released(pair)


def test_both_engines_count_the_same_bytes(pair: Pair, prose: Prose) -> None:
    """Of pages; the receiver counts the summaries that come before them too."""
    before = [server.metrics() for server in (pair.prefill, pair.decode)]
    tokens_of(pair.ask(prose.passage(12, 500), 4))
    wait_until_released(pair)
    sent, received = (
        server.metrics().since(old).value(Metric.TIER_BYTES, reason="admission", **remote)
        for server, old, remote in zip(
            (pair.prefill, pair.decode),
            before,
            ({"target": "remote"}, {"source": "remote"}),
            strict=True,
        )
    )
    assert sent == received > 0


# ------------------------------------------------------------------ clients and routers


def test_a_client_that_goes_away_in_mid_answer_releases_the_export(
    pair: Pair, prose: Prose
) -> None:
    with pair.streamed(prose.passage(13, 900), 600, **SPARSE) as tokens:
        for _ in range(3):
            next(tokens)
        assert pair.outstanding() == 1
    wait_until_released(pair)
    assert len(tokens_of(pair.ask(prose.passage(13, 100), 4))) == 4


def test_a_client_that_goes_away_while_kv_is_loaded_releases_the_export(
    pair: Pair, prose: Prose
) -> None:
    prompt = prose.passage(14, 2200)
    params = pair.prefilled(prompt)
    with pair.decode.streamed(prompt, 100, kv_transfer_params=params):
        pass
    wait_until_released(pair)
    assert len(tokens_of(pair.ask(prose.passage(13, 100), 4))) == 4


def test_an_export_that_nobody_reads_ends_with_its_lease(pair: Pair, prose: Prose) -> None:
    before = pair.prefill.metrics()
    pair.prefilled(prose.passage(15, 300))
    pair.prefill.wait_for(lambda m: m.value(Metric.EXPORTS) == 1, SOON_SECONDS, "no export")
    wait_until_released(pair, LEASE_SECONDS + SOON_SECONDS)
    expired = pair.prefill.metrics().since(before).value(Metric.LEASES_EXPIRED)
    assert expired == 1


@pytest.mark.parametrize(
    "params",
    [{"do_remote_prefill": True}, {"do_remote_prefill": "yes"}, "everything", {"oasis": {}}],
    ids=str,
)
def test_malformed_transfer_parameters_are_refused_and_the_engine_lives(
    pair: Pair, prose: Prose, params: object
) -> None:
    prompt = prose.passage(16, 60)
    response = pair.decode.post(body(prompt, 4, kv_transfer_params=params))
    assert response.status_code == 400
    assert "kv_transfer_params" in response.json()["error"]["message"]
    assert len(tokens_of(pair.decode.post(body(prompt, 4)))) == 4


@pytest.mark.parametrize(
    ("changes", "counted_as"),
    [
        ({"remote_request_id": "cmpl-unknown"}, "reader"),
        ({"oasis": {"version": 1, "generation": 1 << 40}}, "reader"),
        ({"oasis": {"version": 1, "generation": 1 << 63}}, "reader"),
        ({"remote_port": 1}, "lost"),
        ({"remote_host": "no such host"}, "lost"),
    ],
    ids=str,
)
def test_an_export_that_is_not_there_is_computed_again_and_counted(
    pair: Pair, stock: Stock, prose: Prose, changes: dict[str, Any], counted_as: str
) -> None:
    ask = Ask(prose.passage(17, 200), 12)
    expected = stock.ask(ask)
    params = pair.prefilled(ask.prompt) | changes
    before = pair.decode.metrics()
    answer = pair.decode.post(body(ask.prompt, 12, kv_transfer_params=params, **SPARSE))
    assert [tokens_of(answer)] == expected.tokens
    pair.decode.wait_for(
        lambda m: m.since(before).value(Metric.REFUSED_TRANSFERS, reason=counted_as) >= 1,
        REPORT_SECONDS,
        "the refusal is not counted",
    )
    before = pair.decode.metrics()
    assert [tokens_of(pair.decode.post(body(ask.prompt, 12, **SPARSE)))] == expected.tokens
    pair.decode.wait_for(
        lambda m: m.since(before).value("vllm:prefix_cache_hits_total") == 200 // BLOCK * BLOCK,
        REPORT_SECONDS,
        "what was computed again is not in the prefix cache",
    )


@pytest.mark.parametrize("told", [True, False])
def test_an_export_of_another_prompt_is_not_used(
    pair: Pair, stock: Stock, prose: Prose, told: bool
) -> None:
    """Whether the parameters say how long the export's prompt was or not."""
    ask = Ask(prose.passage(18, 200), 12)
    expected = stock.ask(ask)
    params = pair.prefilled(prose.passage(19, 150))
    if not told:
        params["remote_num_tokens"] = None
    answer = pair.decode.post(body(ask.prompt, 12, kv_transfer_params=params, **SPARSE))
    assert [tokens_of(answer)] == expected.tokens
    wait_until_released(pair, LEASE_SECONDS + SOON_SECONDS)


@pytest.mark.parametrize("salt", [None, "theirs"])
def test_an_export_of_a_prompt_of_the_same_length_is_neither_used_nor_cached(
    pair: Pair, stock: Stock, prose: Prose, salt: str | None
) -> None:
    """Loaded whole, it would be found by everybody who asks for the prompt afterwards. The same
    tokens under another salt are somebody else's."""
    ask = Ask(prose.passage(25, 200), 12)
    expected = stock.ask(ask)
    other = {"cache_salt": salt} if salt else {}
    prompt = ask.prompt if salt else prose.passage(26, 200)
    params = pair.prefilled(prompt, **other)
    before = pair.decode.metrics()
    answer = pair.decode.post(body(ask.prompt, 12, kv_transfer_params=params))
    assert [tokens_of(answer)] == expected.tokens
    assert [tokens_of(pair.decode.post(body(ask.prompt, 12)))] == expected.tokens
    pair.decode.wait_for(
        lambda m: m.since(before).value(Metric.REFUSED_TRANSFERS, reason="reader") >= 1,
        REPORT_SECONDS,
        "the refusal is not counted",
    )
    # It is still there for the request that it is for.
    again = pair.decode.post(body(prompt, 2, kv_transfer_params=params, **other))
    assert len(tokens_of(again)) == 2
    wait_until_released(pair)


# ------------------------------------------------------------------ idle


def test_idle_engines_burn_little_cpu(pair: Pair, prose: Prose) -> None:
    """Under a tenth of a core each, after they have served and are connected."""
    tokens_of(pair.ask(prose.passage(20, 100), 4))
    wait_until_released(pair)
    seconds = 6.0
    servers = (pair.prefill, pair.decode)
    before = [server.cpu_seconds() for server in servers]
    threading.Event().wait(seconds)
    burnt = [
        (server.cpu_seconds() - old) / seconds for server, old in zip(servers, before, strict=True)
    ]
    assert max(burnt) < 0.1, burnt


def test_an_engine_that_waits_for_a_reader_burns_little_cpu(pair: Pair, prose: Prose) -> None:
    pair.prefilled(prose.passage(21, 300))
    seconds = 0.6 * LEASE_SECONDS
    before = pair.prefill.cpu_seconds()
    threading.Event().wait(seconds)
    assert pair.outstanding() == 1
    assert (pair.prefill.cpu_seconds() - before) / seconds < 0.2


# ------------------------------------------------------------------ deaths


def test_a_decode_engine_killed_in_mid_answer_costs_its_prefill_engine_a_lease(
    pair: Pair, prose: Prose
) -> None:
    with pair.streamed(prose.passage(22, 900), 600, **SPARSE) as tokens:
        next(tokens)
        pair.decode.kill()
        with pytest.raises(httpx.TransportError):
            list(tokens)
    wait_until_released(pair, LEASE_SECONDS + SOON_SECONDS)
    assert len(tokens_of(pair.prefill.post(body(prose.passage(22, 50), 2)))) == 2


def test_a_prefill_engine_killed_in_mid_answer_costs_a_recomputation(
    pair: Pair, stock: Stock, prose: Prose
) -> None:
    ask = Ask(prose.passage(23, 500), 120)
    expected = stock.ask(ask)
    before = pair.decode.metrics()
    start = time.monotonic()
    with pair.streamed(ask.prompt, ask.tokens, **SPARSE) as tokens:
        answer = [next(tokens)]
        pair.prefill.kill()
        answer += tokens
    assert time.monotonic() - start < 120
    assert [tuple(answer)] == expected.tokens
    counted = pair.decode.metrics().since(before)
    assert counted.value(Metric.REFUSED_TRANSFERS, reason="lost") == 1
    # It serves on, alone and with the next prefill engine.
    assert len(tokens_of(pair.decode.post(body(prose.passage(23, 50), 4)))) == 4
    pair.up()
    assert len(tokens_of(pair.ask(prose.passage(23, 90), 4))) == 4


def test_a_prefill_engine_that_is_gone_before_it_is_asked_costs_a_recomputation(
    pair: Pair, stock: Stock, prose: Prose
) -> None:
    ask = Ask(prose.passage(24, 300), 12)
    expected = stock.ask(ask)
    params = pair.prefilled(ask.prompt)
    pair.prefill.kill()
    answer = pair.decode.post(body(ask.prompt, 12, kv_transfer_params=params))
    assert [tokens_of(answer)] == expected.tokens


def test_no_counter_has_had_labels_that_are_not_declared(running: Pair) -> None:
    """After all that the tests before have made the decode engine count."""
    seen = running.decode.metrics().samples
    for metric, declared in LABEL_VALUES.items():
        had = {
            tuple(dict(labels)[name] for name in SERIES[metric].labels)
            for (name, labels), _ in seen.items()
            if name == metric
        }
        assert had == set(declared)


def test_a_server_whose_engine_dies_fails(running: Pair) -> None:
    """Ends the decode engine, so it stays the last test of the file."""
    assert running.decode.kill_engine() == 1
    assert "the engine has died" in running.decode.log()
