"""Carries out a plan: what the OasisDeployment controls is written, and nothing else."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from oasis_operator.cluster.contests import Contests
from oasis_operator.cluster.errors import ConflictError, MissingError, RefusedError
from oasis_operator.cluster.kinds import CHILD_BY_KIND
from oasis_operator.cluster.queue import Key
from oasis_operator.cluster.server import ApiServer
from oasis_operator.cluster.store import Store
from oasis_operator.desired.metadata import Manifest
from oasis_operator.desired.pod_maker import makes_pods
from oasis_operator.reconcile.dropped import dropped
from oasis_operator.reconcile.foreign_fields import (
    outdated_marks,
    taken_over,
    written_by_others,
)
from oasis_operator.reconcile.observed import Identity, ObjectKey, Observed
from oasis_operator.reconcile.ownership import TakenName, controlled_by, needs
from oasis_operator.reconcile.plan import Plan

ATTEMPTS = 3
"""To write an object that others write in the same moment, before a new pass."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Carried:
    """What came of a plan."""

    taken: tuple[TakenName, ...] = ()
    """Names of the plan's that objects of others have. These are as they were, and what needs them
    is not written."""
    changed: bool = False
    """Something in the cluster is different now."""
    contested: tuple[ObjectKey, ...] = ()
    """Objects that others changed once more, after many times, and that were set right again."""
    again_seconds: float | None = None
    """When to set right what others have changed and what is left so for now."""


class Applier:
    """Tells the store what the API server answers."""

    def __init__(self, server: ApiServer, store: Store) -> None:
        self._server = server
        self._store = store
        self._contests = Contests()

    def forget(self, key: Key) -> None:
        """The OasisDeployment is gone."""
        self._contests.forget(key)

    async def carry_out(self, key: Key, uid: str, todo: Plan, observed: Observed) -> Carried:
        """Does all of the plan that can be done.

        Args:
            key: the OasisDeployment.
            uid: its uid.
            todo: what to do.
            observed: the objects that the plan was made from.

        Raises:
            RefusedError: the API server refuses an object, or does not keep all of it.
            ApiError: the plan is not finished; another one is needed.
        """
        taken: dict[ObjectKey, TakenName] = {}
        lost, held, changed = [], set[ObjectKey](), False
        contested, pauses = [], []
        for manifest in todo.apply:
            name = ObjectKey.of(manifest)
            if needs(manifest) & (taken.keys() | held):
                held.add(name)
                continue
            others = (known := observed.objects.get(name)) is not None and written_by_others(known)
            if others and (pause := self._contests.pause(key, name)) > 0:
                pauses.append(pause)
                continue
            found = await self._written(key, uid, manifest, observed)
            if isinstance(found, TakenName):
                taken[name] = found
                continue
            if others and self._contests.undone(key, name):
                contested.append(name)
            changed |= self._store.keep_object(found) is not None
            log.info("applied %s %s", name.kind, name.name)
            fields = dropped(manifest, found)
            if fields:
                told = ", ".join(fields)
                lost.append(f"{name.kind} {name.name}: the API server did not keep {told}")
        # Pods make room for others, and these cannot come.
        if not any(makes_pods(name.kind) for name in held):
            await self._scale_and_delete(key, todo, observed)
            changed |= bool(todo.scale or todo.delete)
        if lost:
            raise RefusedError(
                422, f"{'; '.join(lost)}: its feature may be off, or a webhook changes it"
            )
        return Carried(tuple(taken.values()), changed, tuple(contested), min(pauses, default=None))

    async def _scale_and_delete(self, key: Key, todo: Plan, observed: Observed) -> None:
        for name, replicas in todo.scale.items():
            target = Identity.of(observed.objects[name])
            live = await self._server.scale(CHILD_BY_KIND[name.kind], target, replicas)
            self._store.keep_object(live)
            log.info("scaled %s %s to %d", name.kind, name.name, replicas)
        for name in todo.delete:
            target = Identity.of(observed.objects[name])
            await self._server.delete(CHILD_BY_KIND[name.kind], target)
            self._store.forget_object(key, name)
            log.info("deleted %s %s", name.kind, name.name)

    async def _take(self, known: Manifest) -> None:
        """Raises ConflictError or MissingError: what is there is another object than ``known``."""
        name = ObjectKey.of(known)
        try:
            await self._server.take(
                CHILD_BY_KIND[name.kind], known, taken_over(known), outdated_marks(known)
            )
        except RefusedError as error:
            # This is judged with what others wrote still in it, such as rights that the operator
            # must not give. The apply is not, and where it replaces a whole list it mends it.
            log.warning("cannot take %s %s from others: %s", name.kind, name.name, error.message)
        else:
            log.info("took %s %s from others", name.kind, name.name)

    async def _written(
        self, key: Key, uid: str, manifest: Manifest, observed: Observed
    ) -> Manifest | TakenName:
        """The object after it was made or changed, or that another one has its name."""
        name = ObjectKey.of(manifest)
        kind, known = CHILD_BY_KIND[name.kind], observed.objects.get(name)
        for _ in range(ATTEMPTS):
            try:
                if known is not None and written_by_others(known):
                    await self._take(known)
                known_uid = known["metadata"]["uid"] if known else None
                return await self._server.apply(kind, manifest, known_uid)
            except RefusedError as error:
                told = f"{name.kind} {name.name}: {error.message}"
                raise RefusedError(error.status, told) from error
            except MissingError as error:
                if known is None:
                    raise RefusedError(
                        error.status,
                        f"{name.kind} {name.name}: the API server does not know this kind of "
                        "object; install what serves it, or for an OasisRole crds/",
                    ) from error
                known = await self._server.find(kind, key.namespace, name.name)
            except ConflictError:
                known = await self._server.find(kind, key.namespace, name.name)
            if known is not None and not controlled_by(known, uid):
                return TakenName.of(known, key.name, uid)
        raise ConflictError(f"{name.kind} {name.name}: others write it again and again")
