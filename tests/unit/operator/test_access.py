"""A Prometheus that asks who asks: a real HTTPS server with a certificate of an own authority."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from oasis_operator.signals.access import Access, Credentials
from oasis_operator.signals.prometheus import NoSignals, Prometheus, Signals
from testbed import pki
from tests.unit.operator.make import deployment
from tests.unit.operator.test_prometheus import vector

TOKEN = "a.b.c"
TENANT = {"X-Scope-OrgID": "serving"}
SERVER = pki.Certificate("server", "prometheus", dns=("localhost",), addresses=("127.0.0.1",))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pki")
    pki.write(folder, [SERVER])
    return folder


@pytest.fixture
def allowed(certificates: Path, tmp_path: Path) -> Credentials:
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    ca = tmp_path / "ca.crt"
    ca.write_text((certificates / "ca.crt").read_text())
    return Credentials(TENANT, token, ca)


@dataclass
class Guarded:
    """Answers whoever has the token of now and the tenant."""

    token: str = TOKEN
    connections: set[object] = field(default_factory=set)

    async def query(self, request: web.Request) -> web.Response:
        self.connections.add(request.transport)
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.Response(status=401)
        if request.headers.get("X-Scope-OrgID") != TENANT["X-Scope-OrgID"]:
            return web.Response(status=403)
        return web.json_response(vector(({}, "0.5")))


@asynccontextmanager
async def asked(
    certificates: Path, credentials: Credentials, guarded: Guarded
) -> AsyncIterator[Prometheus]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates / "server.crt", certificates / "server.key")
    app = web.Application()
    app.router.add_get("/api/v1/query", guarded.query)
    server = TestServer(app)
    await server.start_server(ssl=context)
    try:
        async with aiohttp.ClientSession() as session:
            yield Prometheus(str(server.make_url("/")), session, credentials)
    finally:
        await server.close()


async def ask(certificates: Path, credentials: Credentials) -> Signals | NoSignals:
    async with asked(certificates, credentials, Guarded()) as prometheus:
        return await prometheus.signals(deployment(), "0123abcd")


async def test_token_authority_and_headers_open_the_door(
    certificates: Path, allowed: Credentials
) -> None:
    found = await ask(certificates, allowed)
    assert isinstance(found, Signals)
    assert found.resident_ratio == 0.5


@pytest.mark.parametrize(
    ("lacking", "remedy"),
    [
        ({"token_file": None}, "prometheus.bearerTokenSecret"),
        ({"headers": {}}, "prometheus.headers"),
        ({"ca_file": None}, "prometheus.caSecret"),
    ],
    ids=["token", "tenant", "authority"],
)
async def test_what_is_missing_is_told_by_the_value_that_gives_it(
    certificates: Path, allowed: Credentials, lacking: dict[str, Any], remedy: str
) -> None:
    found = await ask(certificates, replace(allowed, **lacking))
    assert isinstance(found, NoSignals)
    assert found.reason == "PrometheusUnreachable"
    assert remedy in found.message
    assert TOKEN not in found.message


async def test_an_authority_that_is_no_certificate_is_told(
    certificates: Path, allowed: Credentials
) -> None:
    assert allowed.ca_file is not None
    allowed.ca_file.write_text("no certificate")
    found = await ask(certificates, allowed)
    assert isinstance(found, NoSignals)
    assert "prometheus.caSecret" in found.message


async def test_a_token_that_is_replaced_is_used_from_the_next_question_on(
    certificates: Path, allowed: Credentials
) -> None:
    guarded = Guarded()
    async with asked(certificates, allowed, guarded) as prometheus:
        assert isinstance(await prometheus.signals(deployment(), "0123abcd"), Signals)
        guarded.token = "d.e.f"
        assert allowed.token_file is not None
        allowed.token_file.write_text(guarded.token)
        assert isinstance(await prometheus.signals(deployment(), "0123abcd"), Signals)


def test_an_authority_is_one_object_until_it_is_replaced(
    allowed: Credentials, tmp_path: Path
) -> None:
    assert allowed.ca_file is not None
    right = allowed.ca_file.read_text()
    pki.write(tmp_path / "stranger", [])
    allowed.ca_file.write_text((tmp_path / "stranger/ca.crt").read_text())
    access = Access(allowed)
    access.refresh()
    stranger = access.authority
    access.refresh()
    assert access.authority is stranger
    allowed.ca_file.write_text(right)
    access.refresh()
    assert access.authority is not stranger


async def test_connections_are_kept_from_one_question_to_the_next(
    certificates: Path, allowed: Credentials
) -> None:
    guarded = Guarded()
    async with asked(certificates, allowed, guarded) as prometheus:
        await prometheus.signals(deployment(), "0123abcd")
        first = len(guarded.connections)
        await prometheus.signals(deployment(), "0123abcd")
        assert len(guarded.connections) == first
