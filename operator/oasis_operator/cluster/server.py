"""The API server: server-side apply, and the few plain calls that the operator needs."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
from kubernetes.aio import client, config

from oasis_operator.cluster.errors import (
    ApiError,
    ConflictError,
    MissingError,
    NamespaceTerminatingError,
    RefusedError,
    TooManyRequestsError,
    UnreachableError,
)
from oasis_operator.cluster.kinds import ResourceKind
from oasis_operator.cluster.limiter import Limiter, Priority
from oasis_operator.cluster.yaml_body import yaml_body
from oasis_operator.desired.metadata import FIELD_MANAGER, Manifest
from oasis_operator.metrics import OperatorMetrics
from oasis_operator.reconcile.observed import Identity

REQUEST_TIMEOUT_SECONDS = 10.0
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
APPLY = "application/apply-patch+yaml; charset=utf-8"
"""With the character set, for without it the client would escape the text once more."""
MISTYPED = "failed to create typed patch object"
"""How the server begins its words, with status 500, about a field of another type."""
# Of its own, so that applying the spec never takes the status away, and the other way round.
STATUS_MANAGER = "oasiskv-operator-status"
NO_OBJECTS_VERSION = "1"
"""A resourceVersion that no object has: an apply with it makes one, or changes none. The server
compares it with that of the object that is there, and where none is it has nothing to compare."""
_REFUSALS = frozenset({400, 403, 413, 422})


class ApiServer:
    """One connection pool. Writes wait for the limiter; every failure is an :class:`ApiError`."""

    def __init__(
        self, api_client: client.ApiClient, limiter: Limiter, metrics: OperatorMetrics
    ) -> None:
        self._client = api_client
        self._limiter = limiter
        self._metrics = metrics

    async def apply(self, kind: ResourceKind, body: Manifest, uid: str | None) -> Manifest:
        """Server-side apply, to one object and no other of its name.

        Args:
            kind: kind of ``body``.
            body: every field that the operator wants to own, and no others. It takes them from
                other managers.
            uid: of the object to change; ``None``: there is none, and it is made.

        Raises:
            ConflictError: another object has the name, or none has it. Nothing was changed.
        """
        metadata = body["metadata"]
        only = {"resourceVersion": NO_OBJECTS_VERSION} if uid is None else {"uid": uid}
        await self._limiter.take(Priority.SPEC)
        self._metrics.wrote(kind.kind, "apply")
        return await self._request(
            "PATCH",
            kind.path(metadata["namespace"], metadata["name"]),
            body | {"metadata": metadata | only},
            {"fieldManager": FIELD_MANAGER, "force": "true"},
            content=APPLY,
        )

    async def apply_status(self, kind: ResourceKind, body: Manifest) -> Manifest:
        """Server-side apply of the status alone.

        Raises:
            MissingError: there is no such object.
            ConflictError: the object is not the one with the uid in ``body``.
        """
        metadata = body["metadata"]
        await self._limiter.take(Priority.STATUS)
        self._metrics.wrote(kind.kind, "status")
        return await self._request(
            "PATCH",
            kind.path(metadata["namespace"], metadata["name"], "status"),
            body,
            {"fieldManager": STATUS_MANAGER, "force": "true"},
            content=APPLY,
        )

    async def scale(self, kind: ResourceKind, target: Identity, replicas: int) -> Manifest:
        """Changes the replicas alone, of an object whose other fields are not known any more.

        Args:
            kind: kind of the object.
            target: the object.
            replicas: pods that it is to have.

        Raises:
            MissingError: the object is gone.
            ConflictError: another one has its name.
        """
        await self._limiter.take(Priority.SPEC)
        self._metrics.wrote(kind.kind, "scale")
        return await self._merge(kind, target, {"spec": {"replicas": replicas}})

    async def count(self, kind: ResourceKind, target: Identity, changes: Manifest) -> Manifest:
        """Changes the fields by which an object counts what has happened again.

        Raises:
            MissingError, ConflictError: as :meth:`scale`.
        """
        await self._limiter.take(Priority.STATUS)
        self._metrics.wrote(kind.kind, "count")
        return await self._merge(kind, target, changes)

    async def take(
        self, kind: ResourceKind, body: Manifest, managed: list[Manifest], outdated: Iterable[str]
    ) -> None:
        """Writes who owns the fields of an object.

        Args:
            kind: kind of the object.
            body: the object as it was read.
            managed: its new ``managedFields``.
            outdated: annotations that go.

        Raises:
            MissingError: the object is gone.
            ConflictError: it was changed since, or another one has its name.
        """
        await self._limiter.take(Priority.SPEC)
        self._metrics.wrote(kind.kind, "take")
        await self._merge(
            kind,
            Identity.of(body),
            {
                "metadata": {
                    "resourceVersion": body["metadata"]["resourceVersion"],
                    "managedFields": managed,
                    "annotations": dict.fromkeys(outdated),
                }
            },
        )

    async def delete(self, kind: ResourceKind, target: Identity) -> None:
        """Deletes with dependents in the background. What is gone already is fine, and another
        object of that name stays."""
        await self._limiter.take(Priority.SPEC)
        self._metrics.wrote(kind.kind, "delete")
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": target.uid},
        }
        with suppress(MissingError, ConflictError):
            await self._request("DELETE", kind.path(target.namespace, target.name), options, {})

    async def create(
        self, kind: ResourceKind, body: Manifest, priority: Priority = Priority.STATUS
    ) -> Manifest:
        """Creates; an object of that name that exists is a :class:`ConflictError`."""
        await self._limiter.take(priority)
        self._metrics.wrote(kind.kind, "create")
        return await self._request("POST", kind.path(body["metadata"]["namespace"]), body, {})

    async def replace(self, kind: ResourceKind, body: Manifest) -> Manifest:
        """Replaces the object that has the resourceVersion in ``body``."""
        metadata = body["metadata"]
        return await self._request(
            "PUT", kind.path(metadata["namespace"], metadata["name"]), body, {}
        )

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Manifest:
        return await self._request("GET", kind.path(namespace, name), None, {})

    async def find(self, kind: ResourceKind, namespace: str, name: str) -> Manifest | None:
        """The object of that name, whoever made it; ``None`` if there is none.

        By a list, which is all that the operator may do to most kinds.
        """
        found = await self.list_in(kind, namespace, f"metadata.name={name}")
        return next(map(kind.typed, found), None)

    async def list_in(
        self, kind: ResourceKind, namespace: str, field_selector: str
    ) -> list[Manifest]:
        answer = await self._request(
            "GET", kind.path(namespace), None, {"fieldSelector": field_selector}
        )
        items: list[Manifest] = answer["items"]
        return items

    async def list_all(self, kind: ResourceKind, label_selector: str) -> tuple[list[Manifest], int]:
        """Objects of all namespaces, and the version of the cluster that they were read at."""
        query = {"labelSelector": label_selector} if label_selector else {}
        answer = await self._request("GET", kind.everywhere, None, query)
        items: list[Manifest] = answer["items"]
        return items, int(answer["metadata"]["resourceVersion"])

    async def list_metadata(self, kind: ResourceKind) -> list[Manifest]:
        """Names, labels and annotations of all objects of a kind, without what is in them."""
        answer = await self._request("GET", kind.everywhere, None, {}, accept=METADATA_ONLY)
        items: list[Manifest] = answer["items"]
        return items

    async def served(self, kind: ResourceKind) -> bool:
        """Whether the API server knows the kind."""
        try:
            answer = await self._request("GET", f"/apis/{kind.api_version}", None, {})
        except MissingError:
            return False
        return any(resource["name"] == kind.plural for resource in answer["resources"])

    async def _merge(self, kind: ResourceKind, target: Identity, changes: Manifest) -> Manifest:
        return await self._request(
            "PATCH",
            kind.path(target.namespace, target.name),
            changes | {"metadata": changes.get("metadata", {}) | {"uid": target.uid}},
            {"fieldManager": FIELD_MANAGER},
            content="application/merge-patch+json",
        )

    async def _request(
        self,
        method: str,
        path: str,
        body: Manifest | None,
        query: dict[str, str],
        content: str = "application/json",
        accept: str = "application/json",
    ) -> Manifest:
        headers = {"Accept": accept, "Content-Type": content}
        payload = yaml_body(body) if content == APPLY else body
        try:
            request = await self._client.param_serialize(
                method,
                path,
                query_params=list(query.items()),
                header_params=headers,
                body=payload,
                auth_settings=["BearerToken"],
            )
            response = await self._client.call_api(
                *request, _request_timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_SECONDS)
            )
            answer: aiohttp.ClientResponse = response.response
            content_bytes = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(f"{method} {path}: {type(error).__name__} {error}") from error
        if 200 <= answer.status <= 299:
            found: Manifest = json.loads(content_bytes)
            return found
        raise self._error(answer.status, answer.headers.get("Retry-After", ""), content_bytes)

    def _error(self, status: int, retry_after: str, content: bytes) -> ApiError:
        message, causes, fields = _told(content)
        if status == 429:
            delay = float(retry_after) if retry_after.isdigit() else 1.0
            self._limiter.pause(delay)
            self._metrics.throttled.inc()
            return TooManyRequestsError(message, delay)
        if "NamespaceTerminating" in causes:
            return NamespaceTerminatingError(message)
        if status == 404:
            return MissingError(message)
        # An apply to an object with another uid would change a field that cannot be changed.
        if status == 409 or "metadata.uid" in fields:
            return ConflictError(message)
        if status in _REFUSALS or message.startswith(MISTYPED):
            return RefusedError(status, message)
        return ApiError(status, message)


def _told(content: bytes) -> tuple[str, frozenset[str], frozenset[str]]:
    """Message of a ``Status``, reasons of its causes, and the fields that they are about; the raw
    answer where it is none, as a proxy's."""
    try:
        body: Any = json.loads(content)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        return content.decode(errors="replace")[:500], frozenset(), frozenset()
    causes = (body.get("details") or {}).get("causes") or []
    reasons = frozenset(cause.get("reason", "") for cause in causes)
    fields = frozenset(cause.get("field", "") for cause in causes)
    return str(body.get("message", body)), reasons, fields


@asynccontextmanager
async def connected(limiter: Limiter, metrics: OperatorMetrics) -> AsyncIterator[ApiServer]:
    """The API server of KUBECONFIG, or of the cluster that this process runs in."""
    configuration = client.Configuration()
    # Untyped functions of a typed package.
    if os.environ.get("KUBECONFIG"):
        await config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    else:
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    async with client.ApiClient(configuration) as api_client:
        yield ApiServer(api_client, limiter, metrics)
