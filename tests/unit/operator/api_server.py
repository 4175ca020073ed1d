"""One namespace of an API server, as far as the operator sees it."""

from __future__ import annotations

import copy
from collections.abc import ItemsView, Iterable
from itertools import count

from oasis_operator.cluster.errors import ApiError, ConflictError
from oasis_operator.cluster.kinds import OPTIONAL_CHILDREN, ResourceKind
from oasis_operator.desired.metadata import Manifest
from oasis_operator.reconcile.observed import Identity, ObjectKey

NAMESPACE = "team"


class Server:
    """What the operator writes to it. ``failure`` is the answer to a status."""

    def __init__(self) -> None:
        self.objects: dict[ObjectKey, Manifest] = {}
        self.scaled: dict[str, int] = {}
        self.statuses: list[Manifest] = []
        self.failure: ApiError | None = None
        self._numbers = count(1)

    def put(self, body: Manifest, **metadata: object) -> Manifest:
        number = str(next(self._numbers))
        fixed = {"uid": f"object-{number}", "resourceVersion": number}
        live = {**copy.deepcopy(body), "metadata": {**fixed, **body["metadata"], **metadata}}
        self.objects[ObjectKey.of(live)] = live
        return live

    async def served(self, kind: ResourceKind) -> bool:
        return kind not in OPTIONAL_CHILDREN

    async def apply(self, kind: ResourceKind, body: Manifest, uid: str | None) -> Manifest:
        live = self.objects.get(ObjectKey(kind.kind, body["metadata"]["name"]))
        if (live["metadata"]["uid"] if live else None) != uid:
            raise ConflictError("the object has been modified")
        return self.put(body, **({"uid": uid} if uid else {}))

    async def take(
        self, kind: ResourceKind, body: Manifest, managed: list[Manifest], outdated: Iterable[str]
    ) -> None:
        assert kind.kind == body["kind"]
        taken = {**body, "metadata": {**body["metadata"], "managedFields": managed}}
        self.put(taken, annotations={k: v for k, v in _annotations(body) if k not in outdated})

    async def find(self, kind: ResourceKind, namespace: str, name: str) -> Manifest | None:
        assert namespace == NAMESPACE
        return self.objects.get(ObjectKey(kind.kind, name))

    async def scale(self, kind: ResourceKind, target: Identity, replicas: int) -> Manifest:
        self.scaled[target.name] = replicas
        return self.objects[ObjectKey(kind.kind, target.name)]

    async def delete(self, kind: ResourceKind, target: Identity) -> None:
        live = self.objects.get(ObjectKey(kind.kind, target.name))
        if live is not None and live["metadata"]["uid"] == target.uid:
            del self.objects[ObjectKey(kind.kind, target.name)]

    async def create(self, kind: ResourceKind, body: Manifest) -> Manifest:
        key = ObjectKey(kind.kind, body["metadata"]["name"])
        if key in self.objects:
            raise ConflictError("already exists")
        return self.put(body)

    async def count(self, kind: ResourceKind, target: Identity, changes: Manifest) -> Manifest:
        live = self.objects[ObjectKey(kind.kind, target.name)]
        return self.put({**live, **changes})

    async def apply_status(self, kind: ResourceKind, body: Manifest) -> Manifest:
        assert kind.kind == body["kind"]
        if self.failure is not None:
            raise self.failure
        self.statuses.append(body["status"])
        return {**body, "metadata": {**body["metadata"], "resourceVersion": "1000"}}


def _annotations(body: Manifest) -> ItemsView[str, str]:
    found: dict[str, str] = body["metadata"].get("annotations") or {}
    return found.items()
