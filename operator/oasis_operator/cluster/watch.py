"""kopf as a set of informers: its handlers store what they see and mark a key dirty, no more.

Only ``on.event`` handlers: kopf then writes no annotation, no finalizer and no status of its own.
It runs them in any order between kinds, so the store must hold everything before it starts. After
a watch that expired it lists anew, which says what is there and not what went meanwhile.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kopf

from oasis_operator.cluster.kinds import OASIS_DEPLOYMENT, POD, ResourceKind
from oasis_operator.cluster.queue import DirtyQueue, Key
from oasis_operator.cluster.store import Store
from oasis_operator.desired.metadata import DEPLOYMENT_LABEL

Handler = Callable[[Any], Key | None]
"""Whose something is news about, if about anybody."""
SEEN = "seen"
"""In kopf's memory of an object, which lasts as long as the object."""
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class NoDiffs(kopf.DiffBaseStorage):
    """kopf compares each object with what it has handled before, for handlers that there are none
    of here, and what it compares is a copy: most of the time that an event would cost."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence({})

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        return None

    def store(self, **_: Any) -> None:
        pass


class Backoffs:
    """Endless and re-iterable. kopf's own are finite, and when they end in a first list, the
    whole operator ends."""

    def __iter__(self) -> Iterator[float]:
        yield from (0.2, 0.5, 1.0, 2.0)
        while True:
            yield 3.0


def watch_settings(children: tuple[ResourceKind, ...]) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.persistence.diffbase_storage = NoDiffs()
    settings.networking.error_backoffs = Backoffs()
    settings.networking.enforce_retry_after = True
    # Idle workers of seen objects would hold memory for nothing.
    settings.queueing.idle_timeout = 0.5
    for kind in (*children, POD):
        selector = kopf_selector(kind)
        settings.watching.label_selectors[selector] = DEPLOYMENT_LABEL
    return settings


def kopf_selector(kind: ResourceKind) -> tuple[str, str, str]:
    return (kind.group, kind.version, kind.plural)


def watches(
    store: Store,
    queue: DirtyQueue,
    children: tuple[ResourceKind, ...],
    relisted: Callable[[], None],
) -> kopf.OperatorRegistry:
    """Handlers for the custom resources, their objects and their pods.

    Args:
        store: takes what is seen.
        queue: is told whose it is.
        children: kinds of objects besides the resources and the pods.
        relisted: called when something that was seen before is listed once more.
    """
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(_login)

    def forget(body: Any) -> Key | None:
        key = store.drop_resource(body)
        if key is not None:
            queue.forget(key)
        return key

    def watch(
        kind: ResourceKind, keep: Handler, drop: Handler, mark: Callable[[Key], None]
    ) -> None:
        where = kopf_selector(kind)

        @kopf.on.event(*where, registry=registry, id=f"changed-{kind.plural}")
        async def changed(type: str | None, body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:
            if type is None and SEEN in memo:
                relisted()
            memo[SEEN] = True
            key = (drop if type == "DELETED" else keep)(dict(body))
            if key is not None:
                mark(key)

    soon = queue.mark_soon
    watch(OASIS_DEPLOYMENT, store.keep_resource, forget, queue.mark)
    watch(POD, store.keep_pod, store.drop_pod, soon)
    for kind in children:
        watch(kind, _typed(kind, store.keep_object), _typed(kind, store.drop_object), soon)
    return registry


def _typed(kind: ResourceKind, handler: Handler) -> Handler:
    def typed(body: Any) -> Key | None:
        return handler(kind.typed(body))

    return typed


async def _login(settings: kopf.OperatorSettings, **kwargs: Any) -> kopf.ConnectionInfo | None:
    if os.environ.get("KUBECONFIG"):
        return kopf.login_with_kubeconfig(settings=settings, **kwargs)
    return await asyncio.to_thread(_service_account)


def _service_account() -> kopf.ConnectionInfo:
    """Read anew at every login: the kubelet replaces the token every hour.

    By address and not by name, so that the operator does not need the cluster's DNS.
    """
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    return kopf.ConnectionInfo(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        ca_path=str(_ACCOUNT / "ca.crt"),
        token=(_ACCOUNT / "token").read_text().strip(),
    )
