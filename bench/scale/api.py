"""The API server of a bed, asked by a script: many requests at once, with all rights."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from testbed import wait
from testbed.controlplane.bed import ControlPlane

Manifest = dict[str, Any]
AT_ONCE = 20
"""Requests under way; more only wait inside the API server."""
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


class Api:
    """Kept connections to one API server."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def request(
        self,
        method: str,
        path: str,
        body: Manifest | None = None,
        *,
        query: dict[str, str] | None = None,
        content: str = "application/json",
        accept: str = "application/json",
    ) -> Manifest:
        """The answer as JSON; ``RuntimeError`` with the server's words when it refuses."""
        async with self._session.request(
            method,
            path,
            params=query,
            data=None if body is None else json.dumps(body),
            headers={"Content-Type": content, "Accept": accept},
        ) as answer:
            found: Manifest = json.loads(await answer.read())
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {answer.status} {found.get('message')}")
            return found

    async def create(self, path: str, manifests: Sequence[Manifest]) -> None:
        """Creates all, :data:`AT_ONCE` under way."""
        await asyncio.gather(*(self.request("POST", path, item) for item in manifests))

    async def apply(self, objects: Sequence[tuple[str, Manifest]]) -> None:
        """Server-side apply of objects by their paths, :data:`AT_ONCE` under way."""
        query = {"fieldManager": "script", "force": "true"}
        content = "application/apply-patch+yaml"
        await asyncio.gather(
            *(
                self.request("PATCH", path, item, query=query, content=content)
                for path, item in objects
            )
        )

    async def patch(self, path: str, change: Manifest) -> None:
        """A JSON merge patch."""
        await self.request("PATCH", path, change, content="application/merge-patch+json")

    async def items(self, path: str, selector: str = "") -> list[Manifest]:
        query = {"labelSelector": selector} if selector else None
        found: list[Manifest] = (await self.request("GET", path, query=query))["items"]
        return found

    async def column(self, path: str, name: str) -> list[str]:
        """One column of what ``kubectl get`` prints, from the server's cache: cheap to ask for."""
        query = {"resourceVersion": "0", "includeObject": "None"}
        table = await self.request("GET", path, query=query, accept=TABLE)
        number = [column["name"] for column in table["columnDefinitions"]].index(name)
        return [str(row["cells"][number]) for row in table["rows"] or []]


@asynccontextmanager
async def connected(plane: ControlPlane) -> AsyncIterator[Api]:
    """The bed's API server, with the rights of its administrator."""
    pki = plane.layout.pki
    tls = wait.trusting(pki / "ca.crt", (pki / "admin.crt", pki / "admin.key"))
    connector = aiohttp.TCPConnector(ssl=tls, limit=AT_ONCE)
    async with aiohttp.ClientSession(plane.server, connector=connector) as session:
        yield Api(session)
