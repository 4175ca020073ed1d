"""Asks Prometheus. A missing series is missing, never zero."""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import aiohttp

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.autoscaling.measured import Latency, Ratio
from oasis_operator.signals.access import Access, Credentials
from oasis_operator.signals.fleet import FleetNumbers, RoleNumbers
from oasis_operator.signals.queries import (
    LatencyQueries,
    RatioQueries,
    RoleQueries,
    fleet_queries,
    queries,
)

OF_ONE_QUERY = frozenset({400, 413, 414, 422})
"""Statuses that are about a query: 400 and 422 of Prometheus' HTTP API ("parameters are missing or
incorrect", "an expression can't be executed"), and its size. Others concern every query."""
TIMEOUT_SECONDS = 3.0
RETRY_SECONDS = 15.0
"""After a failure no reconcile waits for Prometheus again before this long."""

Found = TypeVar("Found")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Signals:
    """What the engines of one OasisDeployment measured lately; ``None`` and empty: no data.

    Ratios are between 0 and 1; rates are per second.
    """

    resident_ratio: float | None = None
    late_ratio: float | None = None
    recall: Ratio = field(default_factory=lambda: Ratio(None, None))
    """Sum and number of the audits."""
    steps_by_mode: Mapping[str, float] = field(default_factory=dict)
    fallbacks_by_reason: Mapping[str, float] = field(default_factory=dict)
    """Requests that were decoded densely for a time, once a request and reason."""
    requests: float | None = None
    refused_transfers: float | None = None
    numa_by_pod: Mapping[str, float] = field(default_factory=dict)
    enabled_by_link: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class NoSignals:
    """Why there are none."""

    reason: str
    message: str


NOT_CONFIGURED = NoSignals(
    "PrometheusNotConfigured",
    "the operator has no Prometheus to ask: set prometheus.url in the chart's values",
)


ANONYMOUS = Credentials()
REFUSED = frozenset({401, 403})


class Prometheus:
    """One Prometheus server. ``url`` is its base URL, or empty for none."""

    def __init__(
        self, url: str, session: aiohttp.ClientSession, credentials: Credentials = ANONYMOUS
    ) -> None:
        self._url = url.rstrip("/")
        self._session = session
        self._access = Access(credentials)
        self._failure: NoSignals | None = None
        self._retry_at = 0.0

    async def signals(self, od: OasisDeployment, revision: str) -> Signals | NoSignals:
        """For conditions, about the pods of one revision. Never raises: an unreachable Prometheus
        is an answer too."""
        return await self._answered(lambda: self._ask(od, revision))

    async def fleet(self, od: OasisDeployment, revision: str) -> FleetNumbers | NoSignals:
        """For scaling. Never raises either."""
        return await self._answered(lambda: self._ask_fleet(od, revision))

    async def _answered(self, ask: Callable[[], Awaitable[Found]]) -> Found | NoSignals:
        if not self._url:
            return NOT_CONFIGURED
        if self._failure is not None and time.monotonic() < self._retry_at:
            return self._failure
        try:
            self._access.refresh()
            found = await ask()
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError, KeyError) as error:
            # The cause is for the log: in the message it would change the status again and again.
            log.warning("%s: %s %s", self._url, type(error).__name__, error)
            if _is_of_one_query(error):
                self._failure = None
                return NoSignals(
                    "QueryRefused",
                    f"{self._url} refuses a query about this OasisDeployment: rates are as last "
                    "measured; the operator's log has its status, 422 where the server's limit on "
                    "samples or time is too low",
                )
            self._failure = NoSignals("PrometheusUnreachable", f"{self._url} {_trouble(error)}")
            self._retry_at = time.monotonic() + RETRY_SECONDS
            return self._failure
        self._failure = None
        return found

    async def _ask(self, od: OasisDeployment, revision: str) -> Signals:
        text = queries(od, revision)
        resident, late, recall, requests, refused = await asyncio.gather(
            self._value(text.resident_ratio),
            self._value(text.late_ratio),
            self._ratio(text.recall),
            self._value(text.requests),
            self._value(text.refused_transfers),
        )
        steps, fallbacks, numa, links = await asyncio.gather(
            self._vector(text.steps_by_mode, "mode"),
            self._vector(text.fallbacks_by_reason, "reason"),
            self._vector(text.numa_by_pod, "pod"),
            self._vector(text.enabled_links, "link"),
        )
        return Signals(
            resident_ratio=resident,
            late_ratio=late,
            recall=recall,
            steps_by_mode=steps,
            fallbacks_by_reason=fallbacks,
            requests=requests,
            refused_transfers=refused,
            numa_by_pod=numa,
            enabled_by_link=links,
        )

    async def _ask_fleet(self, od: OasisDeployment, revision: str) -> FleetNumbers:
        text = fleet_queries(od, revision)
        decode, prefill = await asyncio.gather(self._role(text.decode), self._role(text.prefill))
        hit, dense, recall, slots = await asyncio.gather(
            self._ratio(text.hit),
            self._ratio(text.dense),
            self._ratio(text.recall),
            self._ratio(text.slots),
        )
        exports, export_seconds = await asyncio.gather(
            self._value(text.exports), self._value(text.export_seconds)
        )
        return FleetNumbers(decode, prefill, hit, dense, recall, slots, exports, export_seconds)

    async def _role(self, text: RoleQueries) -> RoleNumbers:
        running, waiting, busy, tokens = await asyncio.gather(
            self._vector(text.running, "pod"),
            self._vector(text.waiting, "pod"),
            self._vector(text.busy, "pod"),
            self._vector(text.tokens, "pod"),
        )
        links = {
            name: (await self._vector(link.used, "pod"), await self._vector(link.capacity, "pod"))
            for name, link in text.links.items()
        }
        queue, latency = await asyncio.gather(
            self._latency(text.queue), self._latency(text.latency)
        )
        return RoleNumbers(running, waiting, busy, tokens, links, queue, latency)

    async def _latency(self, text: LatencyQueries) -> Latency:
        return Latency(*await asyncio.gather(self._value(text.seconds), self._value(text.rate)))

    async def _ratio(self, text: RatioQueries) -> Ratio:
        return Ratio(*await asyncio.gather(self._value(text.part), self._value(text.whole)))

    async def _value(self, query: str) -> float | None:
        return (await self._vector(query)).get("")

    async def _vector(self, query: str, label: str = "") -> dict[str, float]:
        """Value by label, or by the empty string where a query has one value."""
        async with self._session.get(
            f"{self._url}/api/v1/query",
            params={"query": query},
            headers=self._access.headers,
            ssl=self._access.authority,
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS),
        ) as answer:
            answer.raise_for_status()
            body = await answer.json()
        values = (
            (sample["metric"].get(label, ""), float(sample["value"][1]))
            for sample in body["data"]["result"]
        )
        # 0/0 is "NaN": nothing happened, so there is nothing to know.
        return {key: value for key, value in values if math.isfinite(value)}


def _is_of_one_query(error: Exception) -> bool:
    """Whether others may be answered all the same."""
    return isinstance(error, aiohttp.ClientResponseError) and error.status in OF_ONE_QUERY


def _trouble(error: Exception) -> str:
    """What stands in the way, and where the chart's values say otherwise."""
    if isinstance(error, aiohttp.ClientResponseError) and error.status in REFUSED:
        return (
            "refuses the operator's queries: rates are as last measured; check "
            "prometheus.bearerTokenSecret and prometheus.headers in the chart's values"
        )
    if isinstance(error, aiohttp.ClientConnectorCertificateError | ssl.SSLError):
        return (
            "has a certificate that the operator does not trust: rates are as last measured; check "
            "prometheus.caSecret or prometheus.caConfigMap in the chart's values"
        )
    return (
        "does not answer queries: rates are as last measured; check prometheus.url in the chart's "
        "values and that the server runs"
    )
