"""An engine without a model: what routers, clients and the drain see of one.

It listens on the address of its pod, and on nothing once the pod is gone. A decode engine answers
only with an export that a prefill engine of its own revision still holds.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

from aiohttp import web

from oasis_runtime.contract import HTTP_PORT, Metric, Role
from oasis_runtime.serve.drain import ANSWERED, POLL_SECONDS, RUNNING, Drain, Samples, Seen

PREFILL_SECONDS = 0.1
TOKEN_SECONDS = 0.5


class Engine:
    """One pod's. ``peers``: all engines by address, those that are ending too."""

    def __init__(
        self, address: str, role: Role, revision: str, peers: Mapping[str, Engine]
    ) -> None:
        self.address = address
        self.role = role
        self.revision = revision
        self._peers = peers
        self._running = 0
        self._answered = 0
        self._exports: set[str] = set()
        self._numbers = count(1)
        app = web.Application()
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._health)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_post("/v1/completions/render", self._decline)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)

    async def start(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, self.address, HTTP_PORT).start()

    async def stop(self) -> None:
        """At once, as a process that is killed: whoever is still connected is cut."""
        await self._runner.cleanup()

    def samples(self) -> Samples:
        """Of its metrics those that the drain reads."""
        return {
            RUNNING[0]: self._running,
            ANSWERED: self._answered,
            Metric.EXPORTS: len(self._exports),
        }

    async def drain(self, limit: float, prefills: Iterable[Engine]) -> None:
        """What the pod's ``preStop`` does, by the same judgement and the same numbers."""
        loop = asyncio.get_running_loop()
        watch = Drain(self.role, loop.time(), limit)
        known = tuple(prefills)
        while not watch.may_end(
            loop.time(), Seen(self.samples(), [prefill.samples() for prefill in known])
        ):
            await asyncio.sleep(POLL_SECONDS)

    @contextmanager
    def _request(self) -> Iterator[None]:
        self._running += 1
        try:
            yield
            self._answered += 1
        finally:
            self._running -= 1

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "chat", "object": "model"}]})

    async def _decline(self, _: web.Request) -> web.Response:
        return web.Response(status=403)

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        with self._request():
            if self.role is Role.PREFILL:
                return await self._prefill()
            if self.role is Role.DECODE and (problem := self._take_export(body)):
                return web.json_response({"error": {"message": problem}}, status=500)
            return await self._stream(request, body)

    async def _prefill(self) -> web.Response:
        await asyncio.sleep(PREFILL_SECONDS)
        export = f"{self.address}-{next(self._numbers)}"
        self._exports.add(export)
        params = {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_host": self.address,
            "remote_request_id": export,
        }
        return web.json_response({"choices": [_choice("t")], "kv_transfer_params": params})

    def _take_export(self, body: Mapping[str, Any]) -> str:
        """What is wrong with the prefill that a request comes from; empty if it is fine."""
        params = body.get("kv_transfer_params") or {}
        source = self._peers.get(params.get("remote_host", ""))
        if source is None:
            return f"there is no prefill engine at {params.get('remote_host')}"
        if source.revision != self.revision:
            return f"the prompt is of revision {source.revision}, this is {self.revision}"
        export = params["remote_request_id"]
        if export not in source._exports:
            return f"export {export} is gone"
        source._exports.remove(export)
        return ""

    async def _stream(self, request: web.Request, body: Mapping[str, Any]) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        for _ in range(body["max_tokens"]):
            await asyncio.sleep(TOKEN_SECONDS)
            chunk = json.dumps({"object": "text_completion", "choices": [_choice("t")]})
            await answer.write(f"data: {chunk}\n\n".encode())
        await answer.write(b"data: [DONE]\n\n")
        return answer


def _choice(text: str) -> dict[str, Any]:
    return {"index": 0, "text": text, "finish_reason": None}
