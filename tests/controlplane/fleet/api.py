"""What a kubelet asks of the API server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp

from testbed import wait
from testbed.controlplane.bed import ControlPlane

Manifest = dict[str, Any]


class Api:
    """Of one namespace, with all rights."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        pki = plane.layout.pki
        tls = wait.trusting(pki / "ca.crt", (pki / "admin.crt", pki / "admin.key"))
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            # An event is a line, and a pod is long.
            read_bufsize=1 << 20,
        )
        self._root = f"{plane.server}/api/v1/namespaces/{namespace}"

    async def close(self) -> None:
        await self._session.close()

    async def watch(self, kind: str, chosen: Mapping[str, str]) -> AsyncIterator[Manifest]:
        """Events of the objects that there are and of what becomes of them."""
        query = {"watch": "1", "resourceVersion": "0", **chosen}
        async with self._session.get(f"{self._root}/{kind}", params=query) as answer:
            answer.raise_for_status()
            async for line in answer.content:
                yield json.loads(line)

    async def report(self, pod: Manifest, status: Manifest) -> None:
        """Writes fields of a pod's status; nothing if it is gone."""
        path = f"{self._root}/pods/{pod['metadata']['name']}/status"
        headers = {"Content-Type": "application/merge-patch+json"}
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        async with self._session.patch(path, json=body, headers=headers) as answer:
            if answer.status not in (404, 409):
                answer.raise_for_status()

    async def remove(self, pod: Manifest) -> None:
        """The pod has ended."""
        path = f"{self._root}/pods/{pod['metadata']['name']}"
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        async with self._session.delete(path, json=options) as answer:
            if answer.status not in (404, 409):
                answer.raise_for_status()
