"""The operator process: ``oasis-operator``."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from typing import NoReturn

import aiohttp

from oasis_operator import logs
from oasis_operator.cluster.controller import Controller
from oasis_operator.cluster.devices import Devices
from oasis_operator.cluster.election import Election
from oasis_operator.cluster.errors import ApiError
from oasis_operator.cluster.kinds import OASIS_DEPLOYMENT
from oasis_operator.cluster.limiter import Limiter
from oasis_operator.cluster.patience import patiently
from oasis_operator.cluster.queue import DirtyQueue
from oasis_operator.cluster.reconciler import Reconciler
from oasis_operator.cluster.scaler import DECIDE_SECONDS, Scaler
from oasis_operator.cluster.server import ApiServer, connected
from oasis_operator.cluster.store import Store
from oasis_operator.desired.build import Images
from oasis_operator.endpoints import endpoints
from oasis_operator.fleet import Fleet
from oasis_operator.health import Health
from oasis_operator.metrics import OperatorMetrics
from oasis_operator.settings import Settings, SettingsError, settings_from
from oasis_operator.signals.access import Credentials
from oasis_operator.signals.prometheus import Prometheus

End = asyncio.Task[None] | asyncio.Event

log = logging.getLogger(__name__)


def main() -> None:
    try:
        settings = settings_from(os.environ)
    except SettingsError as error:
        sys.exit(f"oasis-operator: {error}")
    logs.configure(settings.log_level, settings.log_format)
    # kopf tells every event of every object at INFO.
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    asyncio.run(_run(settings))


async def _run(settings: Settings) -> None:
    stop = asyncio.Event()
    _stop_on_signals(stop)
    metrics, queue = OperatorMetrics(), DirtyQueue()
    health = Health(queue)
    limiter = Limiter(settings.writes_per_second, burst=2 * settings.writes_per_second)
    async with (
        connected(limiter, metrics) as server,
        aiohttp.ClientSession() as session,
        endpoints(metrics.registry, health, settings.metrics_port, settings.health_port),
    ):
        election = Election(server, settings.namespace, settings.identity, health)
        log.info("waiting for the lease as %s", settings.identity)
        if await _first(asyncio.create_task(election.acquire()), stop) is stop:
            return
        await _lead(settings, server, session, election, queue, metrics, health, stop)


async def _lead(
    settings: Settings,
    server: ApiServer,
    session: aiohttp.ClientSession,
    election: Election,
    queue: DirtyQueue,
    metrics: OperatorMetrics,
    health: Health,
    stop: asyncio.Event,
) -> NoReturn:
    """Leads until told to stop, until the lease is lost, or until something ends that never
    should. Always ends the process: a cancelled kopf may linger, alive and idle."""
    log.info("leading")
    keep = asyncio.create_task(election.keep())
    await _require_crd(server, election)
    store = Store()
    metrics.registry.register(Fleet(store))
    prometheus = Prometheus(
        settings.prometheus_url,
        session,
        Credentials(
            settings.prometheus_headers,
            settings.prometheus_token_file,
            settings.prometheus_ca_file,
        ),
    )
    reconciler = Reconciler(
        server,
        store,
        prometheus,
        Devices(server),
        Scaler(prometheus, metrics, min(DECIDE_SECONDS, settings.resync_seconds)),
        Images(engine=settings.runtime_image, router=settings.router_image),
        others_wait=lambda: queue.depth > 0,
    )
    controller = Controller(
        server, reconciler, store, queue, metrics, settings.resync_seconds, settings.identity
    )
    health.leads(controller.watching.is_set)
    metrics.leader.set(1)
    run = asyncio.create_task(controller.run(asyncio.Event()))
    # kopf installs handlers of its own when it starts; the operator's must be the last ones.
    ended = await _first(run, controller.watching, keep, stop)
    if ended is controller.watching:
        _stop_on_signals(stop)
        ended = await _first(run, keep, stop, controller.failed)
    if ended is keep:
        log.error("lost the lease: another replica may lead")
        _exit(1)
    # In any other case this replica still holds the lease, and nothing of it acts any more.
    await election.release()
    if ended is stop:
        log.info("stopped")
        _exit(0)
    log.error("the watches or a worker ended by themselves", exc_info=_failure(run))
    _exit(1)


async def _require_crd(server: ApiServer, election: Election) -> None:
    try:
        if await patiently(lambda: server.served(OASIS_DEPLOYMENT)):
            return
        problem = "the OasisDeployment CRD is not installed: kubectl apply -f crds/"
    except ApiError as error:
        problem = f"the API server does not say whether the CRD is installed: {error}"
    log.error(problem)
    await election.release()
    _exit(1)


async def _first(*ends: End) -> End | None:
    """The first of the tasks to end or of the events to be set; ``None`` where a kopf that ends has
    cancelled the wait, as it does with every task younger than itself."""
    waits = {
        asyncio.create_task(end.wait()) if isinstance(end, asyncio.Event) else end: end
        for end in ends
    }
    done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for task, end in waits.items():
        if isinstance(end, asyncio.Event) and not task.done():
            task.cancel()
    found = (end for task, end in waits.items() if task in done)
    return next((end for end in found if isinstance(end, asyncio.Task) or end.is_set()), None)


def _failure(task: asyncio.Task[None]) -> BaseException | None:
    return task.exception() if task.done() and not task.cancelled() else None


def _stop_on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


def _exit(status: int) -> NoReturn:
    logging.shutdown()
    os._exit(status)


if __name__ == "__main__":
    main()
