"""The operator's queries on a real Prometheus, which scrapes engines' metrics in their format."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from oasis_operator.signals.prometheus import NoSignals, Prometheus, Signals
from oasis_runtime.contract import Metric
from testbed.monitoring.local import serving
from tests.unit.operator.make import deployment

SECONDS = 60.0
REVISION = "0123abcd"


def exposition() -> str:
    """Counters that grow by known amounts per second, and gauges."""
    t = time.time()
    samples = {
        Metric.PAGES_SELECTED: 100 * t,
        Metric.PAGES_RESIDENT: 97 * t,
        Metric.PAGES_LATE: t,
        f"{Metric.MASS_RECALL}_sum": 19 * t,
        f"{Metric.MASS_RECALL}_count": 20 * t,
        f'{Metric.STEPS}{{mode="sparse"}}': 9 * t,
        f'{Metric.STEPS}{{mode="dense"}}': t,
        f'{Metric.FALLBACKS}{{reason="short_context"}}': 2 * t,
        "vllm:request_queue_time_seconds_count": 4 * t,
        Metric.REFUSED_TRANSFERS: 0,
        Metric.NUMA_ALIGNED: -1,
        f'{Metric.LINK_ENABLED}{{link="host_fast"}}': 1,
        f'{Metric.LINK_ENABLED}{{link="network"}}': 0,
    }
    return "".join(f"{name} {value}\n" for name, value in samples.items())


class Engine(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(exposition().encode())

    def log_message(self, format: str, *args: object) -> None:
        """Scrapes are not worth a line."""


@pytest.fixture(scope="module")
def engine() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def prometheus(engine: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("prometheus")
    pod = f"chat-{REVISION}-decode-5d9f-x2x"
    target = {
        "targets": [f"127.0.0.1:{engine}"],
        "labels": {"namespace": "team", "pod": pod},
    }
    job = {"job_name": "pods", "static_configs": [target]}
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}
    with serving(folder, json.dumps(config)) as url:
        yield url


async def signals(url: str, name: str) -> Signals | NoSignals:
    async with aiohttp.ClientSession() as session:
        return await Prometheus(url, session).signals(deployment(name), REVISION)


async def test_every_rate_arrives_as_it_was_counted(prometheus: str) -> None:
    found = await signals(prometheus, "chat")
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and not (
        isinstance(found, Signals) and found.resident_ratio is not None and found.steps_by_mode
    ):
        found = await signals(prometheus, "chat")
    assert isinstance(found, Signals)
    assert found.resident_ratio == pytest.approx(0.97, abs=0.01)
    assert found.late_ratio == pytest.approx(0.01, abs=0.005)
    assert found.recall.value == pytest.approx(0.95, abs=0.01)
    assert found.recall.whole is not None
    assert found.recall.whole > 20
    assert found.steps_by_mode["dense"] / sum(found.steps_by_mode.values()) == pytest.approx(
        0.1, abs=0.01
    )
    assert found.requests is not None
    short = found.fallbacks_by_reason["short_context"] / found.requests
    assert short == pytest.approx(0.5, abs=0.1)
    assert found.refused_transfers == 0
    assert list(found.numa_by_pod.values()) == [-1.0]
    assert found.enabled_by_link == {"host_fast": 1.0, "network": 0.0}


async def test_another_deployment_has_no_numbers(prometheus: str) -> None:
    assert await signals(prometheus, "other") == Signals()
