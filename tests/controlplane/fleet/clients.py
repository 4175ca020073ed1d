"""Clients of many OasisDeployments, each through its Service."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterable
from datetime import datetime

import aiohttp

from oasis_operator.desired.metadata import DEPLOYMENT_LABEL
from oasis_runtime.contract import ROUTER_PORT
from tests.controlplane.fleet.api import Api
from tests.controlplane.fleet.kubelet import Kubelet, Pod

EVERY_SECONDS = 0.5
"""Between two requests to one OasisDeployment, whether or not the first is answered."""
TOKENS = 6
"""Of an answer: with these it takes so long that each of three engines has two at any time, and one
that ends without finishing them is found out."""
ANSWER_SECONDS = 60.0


class Clients:
    """``answered`` requests by OasisDeployment, and what was wrong with the others."""

    def __init__(self, api: Api, kubelet: Kubelet) -> None:
        self._api = api
        self._kubelet = kubelet
        self._selectors: dict[str, dict[str, str]] = {}
        self._requests: set[asyncio.Task[None]] = set()
        self._turn = itertools.count()
        self.answered: Counter[str] = Counter()
        self.failures: list[str] = []

    async def watch_services(self) -> None:
        """What a kube-proxy does: a Service is what it selects now."""
        chosen = {"labelSelector": "oasiskv.io/component=router"}
        async for event in self._api.watch("services", chosen):
            body = event["object"]
            name = body["metadata"]["labels"][DEPLOYMENT_LABEL]
            self._selectors[name] = body["spec"]["selector"]

    async def ask(self, names: Iterable[str], stop: asyncio.Event) -> None:
        """Asks all of them, evenly spread, until ``stop`` is set and all requests are answered."""
        wanted = list(names)
        # A connection for each request: what becomes of idle ones is the client's own affair.
        connector = aiohttp.TCPConnector(force_close=True, limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            for name in itertools.cycle(wanted):
                if stop.is_set():
                    break
                task = asyncio.create_task(self._request(session, name))
                self._requests.add(task)
                task.add_done_callback(self._requests.discard)
                await asyncio.sleep(EVERY_SECONDS / len(wanted))
            await asyncio.gather(*self._requests)

    async def _request(self, session: aiohttp.ClientSession, name: str) -> None:
        problem = await self._asked(session, name)
        if problem:
            self.failures.append(f"{datetime.now():%H:%M:%S.%f} {name}: {problem}")
        else:
            self.answered[name] += 1

    async def _asked(self, session: aiohttp.ClientSession, name: str) -> str:
        """What was wrong; empty if the answer was whole."""
        routers = self._endpoints(name)
        if not routers:
            return "its Service has no endpoint"
        router = routers[next(self._turn) % len(routers)]
        url = f"http://{router.address}:{ROUTER_PORT}/v1/completions"
        body = {"model": name, "prompt": "a b c", "max_tokens": TOKENS, "stream": True}
        where = router.body["metadata"]["name"]
        try:
            async with session.post(
                url, json=body, timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS)
            ) as answer:
                text = await answer.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            return f"{where}: {type(error).__name__} {error}"
        if answer.status != 200:
            return f"{where}: status {answer.status} {text[:300]}"
        if text.count('"text"') != TOKENS or "data: [DONE]" not in text:
            return f"{where}: a cut answer {text[-200:]!r}"
        return ""

    def _endpoints(self, name: str) -> list[Pod]:
        wanted = self._selectors.get(name, {}).items()
        return [
            pod
            for pod in self._kubelet.pods.values()
            if wanted and wanted <= pod.labels.items() and pod.ready and not pod.ending.is_set()
        ]
