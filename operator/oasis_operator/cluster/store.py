"""What lists and watches have seen: the custom resources, their objects and their pods."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from oasis_operator.api.role_crd import ROLE_KIND
from oasis_operator.cluster.queue import Key
from oasis_operator.desired.metadata import DEPLOYMENT_LABEL, Manifest
from oasis_operator.desired.pod_maker import TEMPLATE_FIELD
from oasis_operator.reconcile.foreign_fields import written_by_others
from oasis_operator.reconcile.observed import ObjectKey, Observed
from oasis_operator.reconcile.ownership import controlled_by
from oasis_operator.reconcile.pods import PodView

_WITH_STATUS = frozenset({ROLE_KIND, *TEMPLATE_FIELD})
"""Kinds of objects whose status somebody looks at; that of others changes with every pod."""


@dataclass(frozen=True)
class _Stored:
    """A body as JSON: a tenth of the memory of its dictionaries, and read only when needed.

    Two of equal ``text`` differ in their version alone.
    """

    version: int
    uid: str
    text: bytes

    @classmethod
    def of(cls, body: Mapping[str, Any], *, managers: bool, status: bool) -> _Stored:
        """``managers``: with its ``managedFields``, a good part of many bodies."""
        left_out = {"resourceVersion"} if managers else {"resourceVersion", "managedFields"}
        metadata = {k: v for k, v in body["metadata"].items() if k not in left_out}
        held = {k: v for k, v in body.items() if status or k != "status"}
        text = json.dumps({**held, "metadata": metadata}, separators=(",", ":")).encode()
        return cls(_version(body), body["metadata"]["uid"], text)

    def body(self) -> Manifest:
        found: Manifest = json.loads(self.text)
        found["metadata"]["resourceVersion"] = str(self.version)
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

    The ``keep`` and ``drop`` methods return the OasisDeployment that something is news about, or
    ``None`` where it is no news.
    """

    def __init__(self) -> None:
        self._resources: dict[Key, _Stored] = {}
        self._objects: dict[Key, dict[ObjectKey, _Stored]] = {}
        self._pods: dict[Key, dict[str, _Pod]] = {}
        self._news: Counter[Key] = Counter()

    def resources(self) -> list[Key]:
        """Every OasisDeployment there is."""
        return list(self._resources)

    def news(self, key: Key) -> int:
        """Another number whenever :meth:`resource` or :meth:`observed` may give something else."""
        return self._news[key]

    def resource(self, key: Key) -> Manifest | None:
        found = self._resources.get(key)
        return found.body() if found else None

    def observed(self, key: Key, uid: str) -> Observed:
        """The objects that the OasisDeployment with ``uid`` controls, and its pods."""
        bodies = {name: stored.body() for name, stored in self._objects.get(key, {}).items()}
        owned = {name: body for name, body in bodies.items() if controlled_by(body, uid)}
        return Observed(owned, tuple(pod.view for pod in self._pods.get(key, {}).values()))

    def keep_resource(self, body: Mapping[str, Any]) -> Key | None:
        key = _key(body)
        known = self._resources.get(key)
        if known is not None and known.version >= _version(body):
            return None
        stored = self._resources[key] = _Stored.of(body, managers=False, status=True)
        return self._told(key) if known is None or known.text != stored.text else None

    def drop_resource(self, body: Mapping[str, Any]) -> Key | None:
        key = _key(body)
        known = self._resources.get(key)
        if known is None or known.uid != body["metadata"]["uid"]:
            return None
        del self._resources[key]
        return self._told(key)

    def replace_resources(self, bodies: Iterable[Mapping[str, Any]], version: int) -> set[Key]:
        """All that there was at ``version``; what is older and not among it is gone.

        Returns:
            The keys of what was dropped.
        """
        seen = set()
        for body in bodies:
            self.keep_resource(body)
            seen.add(_key(body))
        gone = {k for k, s in self._resources.items() if k not in seen and s.version < version}
        for key in gone:
            del self._resources[key]
            self._told(key)
        return gone

    def keep_object(self, body: Mapping[str, Any]) -> Key | None:
        owner, name = _owner(body), ObjectKey.of(body)
        objects = self._objects.setdefault(owner, {})
        known = objects.get(name)
        if known is not None and known.version >= _version(body):
            return None
        stored = objects[name] = _Stored.of(
            body, managers=written_by_others(body), status=name.kind in _WITH_STATUS
        )
        return self._told(owner) if known is None or known.text != stored.text else None

    def drop_object(self, body: Mapping[str, Any]) -> Key | None:
        owner, name = _owner(body), ObjectKey.of(body)
        known = self._objects.get(owner, {}).get(name)
        if known is None or known.uid != body["metadata"]["uid"]:
            return None
        self.forget_object(owner, name)
        return owner

    def forget_object(self, owner: Key, name: ObjectKey) -> None:
        """After its deletion was accepted, without waiting for the watch to say so."""
        known = self._objects.get(owner, {})
        known.pop(name, None)
        if not known:
            self._objects.pop(owner, None)
        self._told(owner)

    def replace_objects(
        self, kind: str, bodies: Iterable[Mapping[str, Any]], version: int
    ) -> set[Key]:
        """As :meth:`replace_resources`, for the objects of one kind; the keys of their owners."""
        seen = set()
        for body in bodies:
            self.keep_object(body)
            seen.add((_owner(body), ObjectKey.of(body)))
        gone = [
            (owner, name)
            for owner, known in self._objects.items()
            for name, stored in known.items()
            if name.kind == kind and (owner, name) not in seen and stored.version < version
        ]
        for owner, name in gone:
            self.forget_object(owner, name)
        return {owner for owner, _ in gone}

    def keep_pod(self, body: Mapping[str, Any]) -> Key | None:
        owner, pod = _owner(body), _Pod(_version(body), PodView.of(body))
        pods = self._pods.setdefault(owner, {})
        known = pods.get(pod.view.name)
        if known is not None and known.version >= pod.version:
            return None
        pods[pod.view.name] = pod
        return self._told(owner) if known is None or known.view != pod.view else None

    def drop_pod(self, body: Mapping[str, Any]) -> Key | None:
        owner, name = _owner(body), body["metadata"]["name"]
        known = self._pods.get(owner, {}).get(name)
        if known is None or known.view.uid != body["metadata"]["uid"]:
            return None
        self._forget_pod(owner, name)
        return owner

    def replace_pods(self, bodies: Iterable[Mapping[str, Any]], version: int) -> set[Key]:
        """As :meth:`replace_resources`, for pods; the keys of their owners."""
        seen = set()
        for body in bodies:
            self.keep_pod(body)
            seen.add((_owner(body), body["metadata"]["name"]))
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
        self._told(owner)

    def _told(self, key: Key) -> Key:
        self._news[key] += 1
        return key


def _key(body: Mapping[str, Any]) -> Key:
    return Key(body["metadata"]["namespace"], body["metadata"]["name"])


def _owner(body: Mapping[str, Any]) -> Key:
    return Key(body["metadata"]["namespace"], body["metadata"]["labels"][DEPLOYMENT_LABEL])


def _version(body: Mapping[str, Any]) -> int:
    return int(body["metadata"]["resourceVersion"])
