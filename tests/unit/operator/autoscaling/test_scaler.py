"""The loop: what is asked of Prometheus, how often, and what is remembered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.cluster.queue import Key
from oasis_operator.cluster.scaler import Scaler
from oasis_operator.desired.metadata import Component
from oasis_operator.metrics import OperatorMetrics
from oasis_operator.reconcile.observed import Observed
from oasis_operator.reconcile.pods import PodView
from oasis_operator.reconcile.scaling_spec import replicas_of, with_replicas
from oasis_operator.signals.prometheus import Prometheus
from tests.unit.operator.make import built, deployment, pod, stored

KEY = Key("team", "chat")
START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
SCALING = {"decode": {"maxReplicas": 6}, "warmUpSeconds": 0}


def od(**scaling: Any) -> OasisDeployment:
    return deployment(prefill=None, autoscaling={**SCALING, **scaling}, engine={"maxNumSeqs": 14})


def observed(decode: int = 1, ready: int = 1) -> Observed:
    """So many replicas in the Deployment, and so many pods that have been ready for an hour."""
    decided = built(with_replicas(od(), {Component.DECODE: decode}))
    bodies = []
    for number in range(ready):
        body = pod(
            f"decode-{number}", component="decode", revision=decided.rollout.target, ready=True
        )
        hour = (START - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        for condition in body["status"]["conditions"]:
            condition["lastTransitionTime"] = hour
        bodies.append(PodView.of(body))
    return Observed(stored(decided), tuple(bodies))


class World:
    """A scaler, its clock, and how many requests each pod is said to have."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.now = START
        self.metrics = OperatorMetrics()
        self.scaler = Scaler(Prometheus(url, session), self.metrics, now=lambda: self.now)

    async def replicas(self, seen: Observed, given: OasisDeployment | None = None) -> int:
        scaled = await self.scaler.scaled(KEY, given or od(), seen)
        return replicas_of(scaled.od)[Component.DECODE]


class Answers:
    """A Prometheus that knows one number for every query, of every pod."""

    def __init__(self) -> None:
        self.running = 1.0
        self.asked = 0
        self.pods = 1

    def answer(self, query: str) -> dict[str, Any]:
        self.asked += 1
        value = self.running if "avg_over_time(vllm:num_requests_running" in query else 0.0
        names = [f"decode-{n}" for n in range(self.pods)] if "by (pod)" in query else [""]
        result = [{"metric": {"pod": n} if n else {}, "value": [0, str(value)]} for n in names]
        return {"status": "success", "data": {"resultType": "vector", "result": result}}


@asynccontextmanager
async def world(answers: Answers) -> AsyncIterator[World]:
    async def query(request: web.Request) -> web.Response:
        return web.json_response(answers.answer(request.query["query"]))

    app = web.Application()
    app.router.add_get("/api/v1/query", query)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        yield World(str(server.make_url("")), session)


async def test_load_becomes_replicas_and_is_told_once() -> None:
    answers = Answers()
    answers.running = 20.0
    async with world(answers) as found:
        scaled = await found.scaler.scaled(KEY, od(), observed())
        assert replicas_of(scaled.od) == {Component.DECODE: 3}
        assert [event.reason for event in scaled.told] == ["Autoscaled"]
        again = await found.scaler.scaled(KEY, od(), observed(3))
        assert replicas_of(again.od) == {Component.DECODE: 3}
        assert again.told == ()


async def test_prometheus_is_asked_once_a_period() -> None:
    answers = Answers()
    async with world(answers) as found:
        await found.replicas(observed())
        first = answers.asked
        found.now += timedelta(seconds=14)
        await found.replicas(observed())
        assert answers.asked == first
        found.now += timedelta(seconds=2)
        await found.replicas(observed())
        assert answers.asked == 2 * first


async def test_a_new_operator_takes_up_what_another_decided() -> None:
    answers = Answers()
    answers.pods, answers.running = 4, 7.0
    async with world(answers) as found:
        assert await found.replicas(observed(4, ready=4)) == 4


async def test_what_does_not_serve_yet_has_what_was_written_within_the_bounds() -> None:
    answers = Answers()
    bounds = {"decode": {"minReplicas": 2, "maxReplicas": 6}}
    async with world(answers) as found:
        assert await found.replicas(Observed(), od(**bounds)) == 2
        assert answers.asked == 0


async def test_without_prometheus_replicas_stay_and_the_condition_says_why() -> None:
    async with aiohttp.ClientSession() as session:
        found = World("", session)
        scaled = await found.scaler.scaled(KEY, od(), observed(4, ready=4))
    assert replicas_of(scaled.od) == {Component.DECODE: 4}
    assert scaled.condition is not None
    assert (scaled.condition.status, scaled.condition.reason) == (
        "False",
        "PrometheusNotConfigured",
    )


async def test_metrics_name_what_was_decided_until_it_is_gone() -> None:
    answers = Answers()
    answers.running = 20.0
    labels = {"oasiskv_namespace": "team", "oasiskv_deployment": "chat", "role": "decode"}
    async with world(answers) as found:
        await found.replicas(observed())
        registry = found.metrics.registry
        assert registry.get_sample_value("oasis_desired_replicas", labels) == 3
        why = {**labels, "reason": "Load"}
        assert registry.get_sample_value("oasis_scale_decisions_total", why) == 1
        found.scaler.forget(KEY)
        assert registry.get_sample_value("oasis_desired_replicas", labels) is None
        assert registry.get_sample_value("oasis_scale_decisions_total", why) is None


async def test_decisions_are_counted_on_when_another_revision_serves() -> None:
    answers = Answers()
    answers.running = 20.0
    changed = deployment(
        prefill=None, autoscaling=SCALING, engine={"maxNumSeqs": 14}, kv={"budgetTokens": 512}
    )
    async with world(answers) as found:
        await found.replicas(observed())
        await found.replicas(Observed(stored(built(changed))), changed)
        why = {"oasiskv_namespace": "team", "oasiskv_deployment": "chat", "role": "decode"}
        counted = found.metrics.registry.get_sample_value(
            "oasis_scale_decisions_total", {**why, "reason": "Load"}
        )
        assert counted == 1


async def test_without_the_field_nothing_is_asked_and_nothing_changes() -> None:
    answers = Answers()
    given = deployment(prefill=None, decode={"replicas": 5})
    async with world(answers) as found:
        scaled = await found.scaler.scaled(KEY, given, observed())
    assert scaled.od == given
    assert scaled.condition is None
    assert answers.asked == 0
