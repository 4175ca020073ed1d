"""The queries on a real Prometheus with what real engines published (see ``record.py``).

The recording is stored three times, in one namespace for each moment that is looked at, shifted
so that the moment is now.
"""

from __future__ import annotations

import gzip
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.autoscaling.decide import decide
from oasis_operator.autoscaling.history import History
from oasis_operator.autoscaling.measured import Fleet
from oasis_operator.signals.fleet import FleetNumbers, RolePods, fleet_of
from oasis_operator.signals.prometheus import NoSignals, Prometheus
from oasis_operator.signals.queries import fleet_queries, queries
from oasis_runtime.contract import Role
from testbed import programs
from testbed.monitoring.local import serving
from tests.unit.operator.autoscaling.make import spec
from tests.unit.operator.autoscaling.record import FILE, NAMESPACE, PODS, REVISION, names
from tests.unit.operator.make import deployment

RECORDED = gzip.decompress(FILE.read_bytes()).decode()
LENGTH = max(float(line.rpartition(" ")[2]) for line in RECORDED.splitlines())
LOADED, AFTER = 60.0, LENGTH
MOMENTS = {"loaded": LOADED, "after": AFTER}


def in_namespace(namespace: str) -> OasisDeployment:
    return replace(deployment(), namespace=namespace)


def stored() -> str:
    """The recording of every moment, with times of today."""
    now = time.time()
    lines = []
    for namespace, moment in MOMENTS.items():
        for line in RECORDED.splitlines():
            series, value, at = line.rsplit(" ", 2)
            if float(at) <= moment:
                series = series.replace(f'namespace="{NAMESPACE}"', f'namespace="{namespace}"')
                lines.append(f"{series} {value} {now - moment + float(at):.3f}")
    return "\n".join((*lines, "# EOF\n"))


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("prometheus")
    (folder / "recorded.om").write_text(stored())
    promtool = programs.find(["promtool"])["promtool"]
    importing = ["tsdb", "create-blocks-from", "openmetrics", "recorded.om", "data"]
    subprocess.run([promtool, *importing], cwd=folder, check=True, capture_output=True)
    with serving(folder, "scrape_configs: []\n") as url:
        yield url


async def numbers(url: str, namespace: str) -> FleetNumbers:
    async with aiohttp.ClientSession() as session:
        found = await Prometheus(url, session).fleet(in_namespace(namespace), REVISION)
    assert not isinstance(found, NoSignals)
    return found


def fleet(found: FleetNumbers) -> Fleet:
    def pods(role: Role) -> RolePods:
        return RolePods(1, {PODS[role]: 600.0}, 1, 0.0)

    return fleet_of(found, pods(Role.DECODE), pods(Role.PREFILL))


async def test_every_number_arrives_from_engines_under_load(prometheus: str) -> None:
    found = fleet(await numbers(prometheus, "loaded"))
    assert decide(found, spec(), History(), 0.0).held is None


async def test_requests_and_work_are_those_of_the_load(prometheus: str) -> None:
    found = await numbers(prometheus, "loaded")
    pod = PODS[Role.PREFILL]
    in_prefill = found.prefill.running[pod] + found.prefill.waiting[pod]
    in_decode = sum(found.decode.running.values()) + sum(found.decode.waiting.values())
    assert 0.5 <= in_prefill + in_decode <= 3
    assert 0.1 < found.prefill.busy[pod] <= 1
    assert 50 < found.prefill.tokens[pod] < 5000
    assert found.decode.tokens == {PODS[Role.DECODE]: 0.0}


async def test_bytes_that_leave_prefill_are_those_that_reach_decode(prometheus: str) -> None:
    found = await numbers(prometheus, "loaded")
    sent, _ = found.prefill.links["network"]
    received, measured = found.decode.links["network"]
    assert sent[PODS[Role.PREFILL]] == pytest.approx(received[PODS[Role.DECODE]], rel=0.2)
    assert measured[PODS[Role.DECODE]] > received[PODS[Role.DECODE]] > 0
    fast, fast_measured = found.decode.links["host_fast"]
    assert fast_measured[PODS[Role.DECODE]] > fast[PODS[Role.DECODE]] > 0


async def test_a_loopback_interface_does_not_know_its_speed(prometheus: str) -> None:
    _, capacity = (await numbers(prometheus, "loaded")).prefill.links["network"]
    assert capacity == {PODS[Role.PREFILL]: -1.0}


async def test_latencies_are_quantiles_of_what_clients_waited(prometheus: str) -> None:
    found = await numbers(prometheus, "loaded")
    for latency in (found.prefill.queue, found.prefill.latency, found.decode.latency):
        assert latency.value is not None
        assert 0 < latency.value < 60
    assert (found.prefill.latency.value or 0) > (found.decode.latency.value or 0)


async def test_ratios_are_of_decode_alone(prometheus: str) -> None:
    found = await numbers(prometheus, "loaded")
    assert found.hit.value is not None
    assert found.hit.value > 0.9
    assert found.dense.value == 0.0
    assert found.recall.value is not None
    assert 0.5 < found.recall.value <= 1
    assert found.slots.value is not None
    assert 0 < found.slots.value <= 1


async def test_an_export_that_nobody_reads_is_seen_with_its_age(prometheus: str) -> None:
    found = await numbers(prometheus, "after")
    assert found.export_seconds is not None
    assert found.export_seconds > 5
    assert found.exports is not None
    assert found.exports > sum(found.decode.running.values())


async def test_pods_of_another_revision_are_not_this_ones(prometheus: str) -> None:
    async with aiohttp.ClientSession() as session:
        asked = Prometheus(prometheus, session)
        found = await asked.fleet(in_namespace("loaded"), "ffffffff")
    assert not isinstance(found, NoSignals)
    assert found.decode.running == {}
    assert decide(fleet(found), spec(), History(), 0.0).held is not None


def texts(queries: Any) -> Iterator[str]:
    for value in queries.values():
        if isinstance(value, str):
            yield value
        else:
            yield from texts(value)


SERIES = re.compile(r"([a-zA-Z_:][\w:]*)\{")
ASKED = sorted(set(texts(asdict(fleet_queries(in_namespace("loaded"), REVISION)))))


def test_a_recording_keeps_every_series_that_is_asked_for() -> None:
    conditions = texts(asdict(queries(deployment(), REVISION)))
    asked = {name for query in (*ASKED, *conditions) for name in SERIES.findall(query)}
    assert len(asked) > 20
    assert asked <= names()


@pytest.mark.parametrize("query", ASKED)
async def test_every_query_has_an_answer(prometheus: str, query: str) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{prometheus}/api/v1/query", params={"query": query}) as answer,
    ):
        body = await answer.json()
    assert body["status"] == "success", body
    assert body["data"]["result"], query
