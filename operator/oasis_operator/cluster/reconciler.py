"""``reconcile(key)``: observe, build, plan, apply, report. Nothing is remembered in between, but
what would only be worked out once more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import ValidationError

from oasis_operator.api.crd import KIND
from oasis_operator.api.definition import API_VERSION
from oasis_operator.api.resource import InvalidSpecError, OasisDeployment
from oasis_operator.api.status import Status
from oasis_operator.cluster.applier import Applier
from oasis_operator.cluster.devices import Devices
from oasis_operator.cluster.errors import ConflictError, MissingError, RefusedError
from oasis_operator.cluster.events import alarm, decision_event
from oasis_operator.cluster.kinds import EVENT, LEADER_WORKER_SET, OASIS_DEPLOYMENT
from oasis_operator.cluster.queue import Key
from oasis_operator.cluster.recorder import Recorder
from oasis_operator.cluster.scale_targets import ScaleTargets
from oasis_operator.cluster.scaler import Scaled, Scaler
from oasis_operator.cluster.server import ApiServer
from oasis_operator.cluster.store import Store
from oasis_operator.desired.build import Desired, Images, desired
from oasis_operator.desired.limits import UNBOUNDED, limits_of
from oasis_operator.desired.metadata import Component, Manifest
from oasis_operator.desired.override import OverrideError
from oasis_operator.desired.placement import (
    Placements,
    needs_claims,
    needs_inventory,
    placements,
)
from oasis_operator.desired.revision_state import goal_of
from oasis_operator.desired.rollout import Rollout, decide_rollout
from oasis_operator.reconcile.conditions import (
    DECODE_READY,
    PREFILL_READY,
    READY,
    ROUTER_READY,
    Draft,
    newly_alarming,
)
from oasis_operator.reconcile.decisions import Decision, contested, decisions
from oasis_operator.reconcile.images import images
from oasis_operator.reconcile.observed import Identity, Observed
from oasis_operator.reconcile.ownership import TakenName, with_taken_names
from oasis_operator.reconcile.pause import paused
from oasis_operator.reconcile.placement_condition import UNSCHEDULABLE, withheld
from oasis_operator.reconcile.plan import plan
from oasis_operator.reconcile.pods import complaint_of
from oasis_operator.reconcile.scaling_spec import replicas_of
from oasis_operator.reconcile.serving import NOBODY_SERVES, served_by
from oasis_operator.reconcile.status import (
    failed,
    failed_status,
    judge,
    no_groups,
    same_status,
    status_body,
    status_of,
)
from oasis_operator.signals.prometheus import Prometheus
from oasis_operator.topology.inventory import Inventory

AFTER_WRITING_SECONDS = 0.2
"""A pass that has changed something is followed by one that looks at what came of it."""
START_SECONDS = 5.0
"""How old a pod is of which the kubelet is asked why it does not start. For each such question the
API server goes through all events of the namespace."""
UNREADY_SECONDS = 10.0
"""How soon an OasisDeployment that is not ready is looked at again: some reasons, such as the
kubelet's complaints, arrive without any object changing."""
SERVING = (READY, PREFILL_READY, DECODE_READY, ROUTER_READY)
MOST_COMPLAINTS = 3
"""Pods of one OasisDeployment whose events are read; one complaint is enough to act on."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Calm:
    """An OasisDeployment that serves and has nothing left to do, and all that this follows from."""

    news: int
    replicas: Mapping[Component, int]
    placed: Placements
    rollout: Rollout


class Reconciler:
    """Brings one OasisDeployment at a time to its spec."""

    def __init__(
        self,
        server: ApiServer,
        store: Store,
        prometheus: Prometheus,
        devices: Devices,
        scaler: Scaler,
        defaults: Images,
        others_wait: Callable[[], bool],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """``others_wait``: whether other OasisDeployments wait for a pass."""
        self._server = server
        self._store = store
        self._prometheus = prometheus
        self._devices = devices
        self._scaler = scaler
        self._applier = Applier(server, store)
        self._recorder = Recorder(server)
        self._targets = ScaleTargets(server, store)
        self._defaults = defaults
        self._others_wait = others_wait
        self._now = now
        self._calm: dict[Key, _Calm] = {}

    async def reconcile(self, key: Key) -> float | None:
        """One pass.

        Returns:
            Seconds after which another pass is needed, or ``None`` if only a change needs one.

        Raises:
            ApiError: the pass is not finished and has to be repeated. A refusal was reported in
                the status before.
        """
        body = self._store.resource(key)
        if body is None or body["metadata"].get("deletionTimestamp"):
            self._scaler.forget(key)
            self._applier.forget(key)
            self._calm.pop(key, None)
            return None  # Owner references remove the rest.
        try:
            od = OasisDeployment.parse(body)
        except InvalidSpecError as error:
            await self._report_failure(body, failed("InvalidSpec", str(error)))
            return None
        # Together with the resource: what comes while something is waited for is news.
        observed, news = self._store.observed(key, od.uid), self._store.news(key)
        if od.spec.engine.nodes > 1 and not await self._server.served(LEADER_WORKER_SET):
            await self._report_failure(body, no_groups(od))
            return UNREADY_SECONDS
        scaled = await self._scaler.scaled(key, od, observed)
        od = scaled.od
        try:
            found = await self._inventory(od, observed)
            placed = await _placed(od, found, observed)
            calm = self._calm.get(key)
            if calm and calm == _Calm(news, replicas_of(od), placed, calm.rollout):
                ready = await self._report(key, scaled, calm.rollout, placed)
                return _soonest(scaled.again_seconds, None if ready else UNREADY_SECONDS)
            wanted = self._wanted(od, observed, placed)
            todo = plan(wanted.objects, wanted.rollout, observed.objects)
            done = await self._applier.carry_out(key, od.uid, todo, observed)
        except InvalidSpecError as error:
            await self._report_failure(body, failed("InvalidSpec", str(error)))
            return None
        except OverrideError as error:
            await self._report_failure(body, failed("InvalidPodTemplate", str(error)))
            return None
        except RefusedError as error:
            await self._report_failure(body, failed("ApplyRefused", str(error)))
            raise
        told = (*scaled.told, *map(contested, done.contested))
        # Specs go before reports: while others wait for theirs, the next pass tells of this one.
        if done.changed and not (told or done.taken) and self._others_wait():
            return AFTER_WRITING_SECONDS
        ready = await self._report(key, scaled, wanted.rollout, placed, done.taken, told)
        self._calm.pop(key, None)
        if todo.empty and ready:
            self._calm[key] = _Calm(news, replicas_of(od), placed, wanted.rollout)
        return _soonest(
            scaled.again_seconds,
            done.again_seconds,
            AFTER_WRITING_SECONDS if done.changed else None,
            None if ready else UNREADY_SECONDS,
        )

    async def _inventory(self, od: OasisDeployment, observed: Observed) -> Inventory | None:
        if not needs_inventory(od):
            return None
        stuck = any(p.problem and p.problem.reason == UNSCHEDULABLE for p in observed.pods)
        return await self._devices.inventory(with_claims=stuck or needs_claims(od))

    def _wanted(self, od: OasisDeployment, observed: Observed, placed: Placements) -> Desired:
        # Room is made only for pods that there can be.
        hopeless = any(placement.hold and placement.obstacle for placement in placed.values())
        limits = UNBOUNDED if hopeless else limits_of(od)
        wanted = desired(
            od,
            images(od, observed, self._defaults),
            lambda revision: decide_rollout(
                goal_of(od, revision), observed.selected(), observed.revisions(), limits
            ),
            placed,
        )
        return paused(withheld(wanted, placed, observed), observed, self._now())

    async def _report(
        self,
        key: Key,
        scaled: Scaled,
        rollout: Rollout,
        placed: Placements,
        taken: tuple[TakenName, ...] = (),
        told: tuple[Decision, ...] = (),
    ) -> bool:
        """Whether it serves with all its pods, or is gone."""
        od, body = scaled.od, self._store.resource(key)
        if body is None or body["metadata"]["uid"] != od.uid:
            return True
        observed = self._store.observed(key, od.uid)
        counts = {role.value: count for role, count in replicas_of(od).items()}
        await self._targets.sync(observed, counts)
        before, served = _status(body), served_by(rollout, observed)
        signals = await self._prometheus.signals(od, served) if served else NOBODY_SERVES
        now = self._now()
        complaints = await self._complaints(od, rollout, observed, now)
        drafts = with_taken_names(
            judge(od, rollout, observed, signals, complaints, placed, before, now), taken
        )
        drafts += [scaled.condition] if scaled.condition else []
        after = status_of(od, rollout, observed, signals, drafts, placed, before, _text(now))
        await self._write(body, before, after, drafts, told)
        return all(draft.status == "True" for draft in drafts if draft.type in SERVING)

    async def _complaints(
        self, od: OasisDeployment, rollout: Rollout, observed: Observed, now: datetime
    ) -> dict[str, str]:
        """Pod uid -> the kubelet's last warning, for pods that a kubelet cannot start."""
        starting = [
            pod
            for pod in observed.pods
            if pod.starting
            and not pod.problem
            and not pod.terminating
            and pod.revision == rollout.target
            and (now - pod.created).total_seconds() >= START_SECONDS
        ]
        found = {}
        for pod in sorted(starting, key=lambda pod: pod.name)[:MOST_COMPLAINTS]:
            warnings = await self._server.list_in(
                EVENT, od.namespace, f"involvedObject.uid={pod.uid},type=Warning"
            )
            if complaint := complaint_of(warnings):
                found[pod.uid] = complaint
        return found

    async def _report_failure(self, body: Manifest, drafts: list[Draft]) -> None:
        before = _status(body)
        generation = body["metadata"]["generation"]
        after = failed_status(before, drafts, _text(self._now()), generation)
        await self._write(body, before, after, drafts)

    async def _write(
        self,
        body: Manifest,
        before: Status,
        after: Status,
        drafts: list[Draft],
        decided: tuple[Decision, ...] = (),
    ) -> None:
        """Events first: a repeated pass tells none of them again, but one that is left out would
        never be told."""
        metadata, now = body["metadata"], self._now()
        alarms = newly_alarming(drafts, before.conditions or [])
        seen = decisions(before, after, {draft.type for draft in alarms})
        told = [
            *(alarm(metadata, draft, now) for draft in alarms),
            *(decision_event(metadata, decision, now) for decision in (*decided, *seen)),
        ]
        for event in told:
            await self._recorder.tell(event)
        if same_status(before, after):
            return
        try:
            written = await self._server.apply_status(
                OASIS_DEPLOYMENT,
                {
                    "apiVersion": API_VERSION,
                    "kind": KIND,
                    "metadata": Identity.of(body).metadata,
                    "status": status_body(after),
                },
            )
        except (MissingError, ConflictError):
            log.info("deleted before its status was written")
        else:
            self._store.keep_resource(written)


async def _placed(od: OasisDeployment, found: Inventory | None, observed: Observed) -> Placements:
    proven = observed.proven_allocation()
    if found is None:
        return placements(od, None, proven)
    # In a large cluster this calculates for a second, and the lease must be renewed.
    return await asyncio.to_thread(placements, od, found, proven)


def _soonest(*seconds: float | None) -> float | None:
    return min((each for each in seconds if each is not None), default=None)


def _status(body: Manifest) -> Status:
    try:
        return Status.model_validate(body.get("status") or {})
    except ValidationError:
        # Written under another version of the CRD; it is replaced as a whole.
        return Status()


def _text(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")
