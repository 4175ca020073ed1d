"""Against a real HTTP server that answers as Prometheus' API does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from oasis_operator.signals.prometheus import NoSignals, Prometheus, Signals
from tests.unit.operator.make import deployment

Answer = Callable[[str], Any]


def vector(*samples: tuple[dict[str, str], str]) -> dict[str, Any]:
    result = [{"metric": labels, "value": [0, value]} for labels, value in samples]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


@asynccontextmanager
async def prometheus(answer: Answer) -> AsyncIterator[Prometheus]:
    async def query(request: web.Request) -> web.Response:
        body = answer(request.query["query"])
        return web.json_response(body) if isinstance(body, dict) else web.Response(status=body)

    app = web.Application()
    app.router.add_get("/prefix/api/v1/query", query)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        yield Prometheus(f"{server.make_url('/prefix')}/", session)


async def ask(answer: Answer) -> Signals | NoSignals:
    async with prometheus(answer) as found:
        return await found.signals(deployment(), "0123abcd")


async def test_numbers_are_read_by_their_label() -> None:
    def answer(query: str) -> Any:
        if "numa" in query:
            return vector(({"pod": "a"}, "1"), ({"pod": "b"}, "0"))
        if "by (mode)" in query:
            return vector(({"mode": "sparse"}, "3"))
        return vector(({}, "0.5"))

    found = await ask(answer)
    assert isinstance(found, Signals)
    assert found.numa_by_pod == {"a": 1.0, "b": 0.0}
    assert found.steps_by_mode == {"sparse": 3.0}
    assert found.resident_ratio == 0.5


async def test_a_missing_series_is_no_number() -> None:
    assert await ask(lambda _: vector()) == Signals()


async def test_nothing_divided_by_nothing_is_no_number() -> None:
    found = await ask(lambda _: vector(({}, "NaN")))
    assert isinstance(found, Signals)
    assert found.resident_ratio is None


@pytest.mark.parametrize("answer", [500, {"status": "error"}], ids=["error", "no data"])
async def test_a_server_that_answers_otherwise_is_unreachable(answer: Any) -> None:
    found = await ask(lambda _: answer)
    assert isinstance(found, NoSignals)
    assert found.reason == "PrometheusUnreachable"


async def test_no_server_is_unreachable_and_is_not_asked_again_at_once() -> None:
    asked = []

    def answer(query: str) -> int:
        asked.append(query)
        return 503

    async with prometheus(answer) as found:
        first = await found.signals(deployment(), "0123abcd")
        count = len(asked)
        assert await found.signals(deployment(), "0123abcd") == first
        assert len(asked) == count


@pytest.mark.parametrize("status", [400, 422])
async def test_a_query_that_is_refused_silences_no_other_deployment(status: int) -> None:
    def answer(query: str) -> Any:
        return status if "greedy" in query else vector(({}, "0.5"))

    async with prometheus(answer) as found:
        refused = await found.signals(deployment(name="greedy"), "0123abcd")
        assert isinstance(refused, NoSignals)
        assert refused.reason == "QueryRefused"
        assert isinstance(await found.signals(deployment(), "0123abcd"), Signals)


@pytest.mark.parametrize("status", [401, 404, 429, 500, 503])
async def test_what_concerns_every_query_is_asked_about_once_for_all(status: int) -> None:
    asked = []

    def answer(query: str) -> Any:
        asked.append(query)
        return status

    async with prometheus(answer) as found:
        await found.signals(deployment(name="first"), "0123abcd")
        count = len(asked)
        other = await found.signals(deployment(), "0123abcd")
        assert isinstance(other, NoSignals)
        assert other.reason == "PrometheusUnreachable"
        assert len(asked) == count


async def test_no_address_is_not_configured() -> None:
    async with aiohttp.ClientSession() as session:
        found = await Prometheus("", session).signals(deployment(), "0123abcd")
    assert isinstance(found, NoSignals)
    assert found.reason == "PrometheusNotConfigured"


async def test_why_it_is_unreachable_does_not_change_what_is_said() -> None:
    one = await ask(lambda _: 500)
    other = await ask(lambda _: {"status": "error"})
    assert isinstance(one, NoSignals)
    assert isinstance(other, NoSignals)
    assert one.message.partition(" ")[2] == other.message.partition(" ")[2]
