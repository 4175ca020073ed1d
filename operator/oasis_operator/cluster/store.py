"""What lists and watches have seen: the custom resources, their objects and their pods."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from oasis_operator.cluster.queue import Key
from oasis_operator.desired.metadata import DEPLOYMENT_LABEL, Manifest
from oasis_operator.reconcile.foreign_fields import written_by_others
from oasis_operator.reconcile.observed import ObjectKey, Observed
from oasis_operator.reconcile.ownership import controlled_by
from oasis_operator.reconcile.pods import PodView


@dataclass(frozen=True)
class _Stored:
    """A body as JSON: a tenth of the memory of its dictionaries, and read only when needed."""

    version: int
    uid: str
    text: bytes

    @classmethod
    def of(cls, body: Mapping[str, Any], *, managers: bool = False) -> _Stored:
        """``managers``: with its ``managedFields``, a good part of many bodies."""
        metadata = {k: v for k, v in body["metadata"].items() if managers or k != "managedFields"}
        text = json.dumps({**body, "metadata": metadata}, separators=(",", ":")).encode()
        return cls(_version(body), body["metadata"]["uid"], text)

    def body(self) -> Manifest:
        found: Manifest = json.loads(self.text)
        return found


@dataclass(frozen=True)
class _Pod:
    version: int
    view: PodView


class Store:
    """Holds the newest version of everything; an older one never replaces it.

    Answers to the operator's own writes are kept at once, and may well be newer than what the
    watch brings next. A watch that was interrupted tells nothing of what went meanwhile: whole
    lists, given to the ``replace`` methods now and then, do.
    """

    def __init__(self) -> None:
        self._resources: dict[Key, _Stored] = {}
        self._objects: dict[Key, dict[ObjectKey, _Stored]] = {}
        self._pods: dict[Key, dict[str, _Pod]] = {}

    def resources(self) -> list[Key]:
        """Every OasisDeployment there is."""
        return list(self._resources)

    def resource(self, key: Key) -> Manifest | None:
        found = self._resources.get(key)
        return found.body() if found else None

    def observed(self, key: Key, uid: str) -> Observed:
        """The objects that the OasisDeployment with ``uid`` controls, and its pods."""
        bodies = {name: stored.body() for name, stored in self._objects.get(key, {}).items()}
        owned = {name: body for name, body in bodies.items() if controlled_by(body, uid)}
        return Observed(owned, tuple(pod.view for pod in self._pods.get(key, {}).values()))

    def keep_resource(self, body: Mapping[str, Any]) -> Key:
        key = _key(body)
        known = self._resources.get(key)
        if known is None or known.version <= _version(body):
            self._resources[key] = _Stored.of(body)
        return key

    def drop_resource(self, body: Mapping[str, Any]) -> Key:
        key = _key(body)
        known = self._resources.get(key)
        if known is not None and known.uid == body["metadata"]["uid"]:
            del self._resources[key]
        return key

    def replace_resources(self, bodies: Iterable[Mapping[str, Any]], version: int) -> set[Key]:
        """All that there was at ``version``; what is older and not among it is gone.

        Returns:
            The keys of what was dropped.
        """
        seen = {self.keep_resource(body) for body in bodies}
        gone = {k for k, s in self._resources.items() if k not in seen and s.version < version}
        for key in gone:
            del self._resources[key]
        return gone

    def keep_object(self, body: Mapping[str, Any]) -> Key:
        owner, name = _owner(body), ObjectKey.of(body)
        known = self._objects.setdefault(owner, {})
        if name not in known or known[name].version <= _version(body):
            known[name] = _Stored.of(body, managers=written_by_others(body))
        return owner

    def drop_object(self, body: Mapping[str, Any]) -> Key:
        owner, name = _owner(body), ObjectKey.of(body)
        known = self._objects.get(owner, {}).get(name)
        if known is not None and known.uid == body["metadata"]["uid"]:
            self.forget_object(owner, name)
        return owner

    def forget_object(self, owner: Key, name: ObjectKey) -> None:
        """After its deletion was accepted, without waiting for the watch to say so."""
        known = self._objects.get(owner, {})
        known.pop(name, None)
        if not known:
            self._objects.pop(owner, None)

    def replace_objects(
        self, kind: str, bodies: Iterable[Mapping[str, Any]], version: int
    ) -> set[Key]:
        """As :meth:`replace_resources`, for the objects of one kind; the keys of their owners."""
        seen = {(self.keep_object(body), ObjectKey.of(body)) for body in bodies}
        gone = [
            (owner, name)
            for owner, known in self._objects.items()
            for name, stored in known.items()
            if name.kind == kind and (owner, name) not in seen and stored.version < version
        ]
        for owner, name in gone:
            self.forget_object(owner, name)
        return {owner for owner, _ in gone}

    def keep_pod(self, body: Mapping[str, Any]) -> Key:
        owner, pod = _owner(body), _Pod(_version(body), PodView.of(body))
        known = self._pods.setdefault(owner, {})
        name = pod.view.name
        if name not in known or known[name].version <= pod.version:
            known[name] = pod
        return owner

    def drop_pod(self, body: Mapping[str, Any]) -> Key:
        owner, name = _owner(body), body["metadata"]["name"]
        known = self._pods.get(owner, {}).get(name)
        if known is not None and known.view.uid == body["metadata"]["uid"]:
            self._forget_pod(owner, name)
        return owner

    def replace_pods(self, bodies: Iterable[Mapping[str, Any]], version: int) -> set[Key]:
        """As :meth:`replace_resources`, for pods; the keys of their owners."""
        seen = {(self.keep_pod(body), body["metadata"]["name"]) for body in bodies}
        gone = [
            (owner, name)
            for owner, known in self._pods.items()
            for name, pod in known.items()
            if (owner, name) not in seen and pod.version < version
        ]
        for owner, name in gone:
            self._forget_pod(owner, name)
        return {owner for owner, _ in gone}

    def _forget_pod(self, owner: Key, name: str) -> None:
        known = self._pods[owner]
        del known[name]
        if not known:
            del self._pods[owner]


def _key(body: Mapping[str, Any]) -> Key:
    return Key(body["metadata"]["namespace"], body["metadata"]["name"])


def _owner(body: Mapping[str, Any]) -> Key:
    return Key(body["metadata"]["namespace"], body["metadata"]["labels"][DEPLOYMENT_LABEL])


def _version(body: Mapping[str, Any]) -> int:
    return int(body["metadata"]["resourceVersion"])
