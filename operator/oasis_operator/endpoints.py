"""HTTP endpoints of the operator: metrics on one port, health on another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from oasis_operator.health import Health

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def endpoints(
    registry: CollectorRegistry, health: Health, metrics_port: int, health_port: int
) -> AsyncIterator[None]:
    """Serves ``/metrics``, and ``/healthz`` and ``/readyz``, while the context is open."""
    metrics = web.Application()
    metrics.router.add_get("/metrics", _metrics(registry))
    probes = web.Application()
    probes.router.add_get("/healthz", _probe(health.stuck))
    probes.router.add_get("/readyz", _probe(health.unready))
    runners = []
    try:
        for app, port in ((metrics, metrics_port), (probes, health_port)):
            # Without access log: a probe every few seconds says nothing.
            runner = web.AppRunner(app, access_log=None)
            runners.append(runner)
            await runner.setup()
            await web.TCPSite(runner, port=port).start()
        yield
    finally:
        for runner in runners:
            await runner.cleanup()


def _metrics(registry: CollectorRegistry) -> Answer:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    return answer


def _probe(problem: Callable[[], str]) -> Answer:
    async def answer(_: web.Request) -> web.Response:
        sentence = problem()
        return web.Response(status=503 if sentence else 200, text=sentence or "ok")

    return answer
