"""What the watches have seen: slim copies of the custom resources, their objects and pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from oasis_operator.cluster.queue import Key
from oasis_operator.desired.metadata import DEPLOYMENT_LABEL, Manifest
from oasis_operator.reconcile.observed import ObjectKey, Observed
from oasis_operator.reconcile.pods import PodView


class Store:
    """Holds the newest version of everything; an older one never replaces it.

    Answers to the operator's own writes are kept at once, and may well be newer than what the
    watch brings next.
    """

    def __init__(self) -> None:
        self._resources: dict[Key, Manifest] = {}
        self._objects: dict[Key, dict[ObjectKey, Manifest]] = {}
        self._pods: dict[Key, dict[str, tuple[int, PodView]]] = {}

    def resources(self) -> list[Key]:
        """Every OasisDeployment there is."""
        return list(self._resources)

    def resource(self, key: Key) -> Manifest | None:
        return self._resources.get(key)

    def observed(self, key: Key, uid: str) -> Observed:
        """The objects that the OasisDeployment with ``uid`` controls, and its pods."""
        owned = {
            name: body
            for name, body in self._objects.get(key, {}).items()
            if _controlled_by(body, uid)
        }
        return Observed(owned, tuple(view for _, view in self._pods.get(key, {}).values()))

    def keep_resource(self, body: Mapping[str, Any]) -> Key:
        key = _key(body)
        if not _older(body, self._resources.get(key)):
            self._resources[key] = _slim(body)
        return key

    def drop_resource(self, body: Mapping[str, Any]) -> Key:
        key = _key(body)
        known = self._resources.get(key)
        if known is not None and known["metadata"]["uid"] == body["metadata"]["uid"]:
            del self._resources[key]
        return key

    def keep_object(self, body: Mapping[str, Any]) -> Key:
        owner, name = _owner(body), ObjectKey.of(body)
        known = self._objects.setdefault(owner, {})
        if not _older(body, known.get(name)):
            known[name] = _slim(body)
        return owner

    def drop_object(self, body: Mapping[str, Any]) -> Key:
        owner, name = _owner(body), ObjectKey.of(body)
        known = self._objects.get(owner, {})
        if name in known and known[name]["metadata"]["uid"] == body["metadata"]["uid"]:
            self.forget_object(owner, name)
        return owner

    def forget_object(self, owner: Key, name: ObjectKey) -> None:
        """After its deletion was accepted, without waiting for the watch to say so."""
        known = self._objects.get(owner, {})
        known.pop(name, None)
        if not known:
            self._objects.pop(owner, None)

    def keep_pod(self, body: Mapping[str, Any]) -> Key:
        owner, view = _owner(body), PodView.of(body)
        version = _version(body)
        known = self._pods.setdefault(owner, {})
        if view.name not in known or known[view.name][0] <= version:
            known[view.name] = (version, view)
        return owner

    def drop_pod(self, body: Mapping[str, Any]) -> Key:
        owner, name = _owner(body), body["metadata"]["name"]
        known = self._pods.get(owner, {})
        if name in known and known[name][1].uid == body["metadata"]["uid"]:
            del known[name]
            if not known:
                del self._pods[owner]
        return owner


def _key(body: Mapping[str, Any]) -> Key:
    return Key(body["metadata"]["namespace"], body["metadata"]["name"])


def _owner(body: Mapping[str, Any]) -> Key:
    return Key(body["metadata"]["namespace"], body["metadata"]["labels"][DEPLOYMENT_LABEL])


def _version(body: Mapping[str, Any]) -> int:
    return int(body["metadata"]["resourceVersion"])


def _older(body: Mapping[str, Any], known: Manifest | None) -> bool:
    return known is not None and _version(body) < _version(known)


def _controlled_by(body: Manifest, uid: str) -> bool:
    references: Iterable[Mapping[str, Any]] = body["metadata"].get("ownerReferences") or ()
    return any(item["uid"] == uid and item.get("controller") for item in references)


def _slim(body: Mapping[str, Any]) -> Manifest:
    metadata = {k: v for k, v in body["metadata"].items() if k != "managedFields"}
    return {**body, "metadata": metadata}
