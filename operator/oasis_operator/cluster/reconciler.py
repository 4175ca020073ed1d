"""``reconcile(key)``: observe, build, plan, apply, report. Nothing is remembered in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
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
from oasis_operator.desired.metadata import Manifest
from oasis_operator.desired.override import OverrideError
from oasis_operator.desired.placement import (
    Placements,
    needs_claims,
    needs_inventory,
    placements,
)
from oasis_operator.desired.revision_state import goal_of
from oasis_operator.desired.rollout import decide_rollout
from oasis_operator.reconcile.conditions import (
    DECODE_READY,
    PREFILL_READY,
    READY,
    ROUTER_READY,
    Draft,
    newly_alarming,
)
from oasis_operator.reconcile.decisions import Decision, decisions
from oasis_operator.reconcile.images import images
from oasis_operator.reconcile.observed import Identity, Observed
from oasis_operator.reconcile.ownership import Obstacle, with_obstacles
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

UNREADY_SECONDS = 10.0
"""How soon an OasisDeployment that is not ready is looked at again: some reasons, such as the
kubelet's complaints, arrive without any object changing."""
SERVING = (READY, PREFILL_READY, DECODE_READY, ROUTER_READY)
MOST_COMPLAINTS = 3
"""Pods of one OasisDeployment whose events are read; one complaint is enough to act on."""

log = logging.getLogger(__name__)


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
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._server = server
        self._store = store
        self._prometheus = prometheus
        self._devices = devices
        self._scaler = scaler
        self._applier = Applier(server, store)
        self._recorder = Recorder(server)
        self._targets = ScaleTargets(server, store)
        self._defaults = defaults
        self._now = now

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
            return None  # Owner references remove the rest.
        try:
            od = OasisDeployment.parse(body)
        except InvalidSpecError as error:
            await self._report_failure(body, failed("InvalidSpec", str(error)))
            return None
        if od.spec.engine.nodes > 1 and not await self._server.served(LEADER_WORKER_SET):
            await self._report_failure(body, no_groups(od))
            return UNREADY_SECONDS
        observed = self._store.observed(key, od.uid)
        scaled = await self._scaler.scaled(key, od, observed)
        od = scaled.od
        try:
            found = await self._inventory(od, observed)
            # In a large cluster this calculates for a second, and the lease must be renewed.
            placed = await asyncio.to_thread(placements, od, found, observed.proven_allocation())
            wanted = self._wanted(od, observed, placed)
            todo = plan(wanted.objects, wanted.rollout, observed.objects)
            obstacles = await self._applier.carry_out(key, od.uid, todo, observed)
        except InvalidSpecError as error:
            await self._report_failure(body, failed("InvalidSpec", str(error)))
            return None
        except OverrideError as error:
            await self._report_failure(body, failed("InvalidPodTemplate", str(error)))
            return None
        except RefusedError as error:
            await self._report_failure(body, failed("ApplyRefused", str(error)))
            raise
        return await self._report(key, scaled, wanted, placed, obstacles)

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
        wanted: Desired,
        placed: Placements,
        obstacles: tuple[Obstacle, ...],
    ) -> float | None:
        od, body = scaled.od, self._store.resource(key)
        if body is None:
            return None
        observed = self._store.observed(key, od.uid)
        counts = {role.value: count for role, count in replicas_of(od).items()}
        await self._targets.sync(observed, counts)
        before, served = _status(body), served_by(wanted.rollout, observed)
        signals = await self._prometheus.signals(od, served) if served else NOBODY_SERVES
        complaints = await self._complaints(od, wanted, observed)
        now = self._now()
        drafts = with_obstacles(
            judge(od, wanted.rollout, observed, signals, complaints, placed, before, now), obstacles
        )
        drafts += [scaled.condition] if scaled.condition else []
        after = status_of(od, wanted.rollout, observed, signals, drafts, placed, before, _text(now))
        await self._write(body, before, after, drafts, scaled.told)
        ready = all(d.status == "True" for d in drafts if d.type in SERVING)
        again = () if scaled.again_seconds is None else (scaled.again_seconds,)
        return min((*again, *(() if ready else (UNREADY_SECONDS,))), default=None)

    async def _complaints(
        self, od: OasisDeployment, wanted: Desired, observed: Observed
    ) -> dict[str, str]:
        """Pod uid -> the kubelet's last warning, for pods that a kubelet cannot start."""
        starting = [
            pod
            for pod in observed.pods
            if pod.starting
            and not pod.problem
            and not pod.terminating
            and pod.revision == wanted.rollout.target
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
        scaled: tuple[Decision, ...] = (),
    ) -> None:
        """Events first: a repeated pass tells none of them again, but one that is left out would
        never be told."""
        metadata, now = body["metadata"], self._now()
        alarms = newly_alarming(drafts, before.conditions or [])
        decided = [*scaled, *decisions(before, after, {draft.type for draft in alarms})]
        told = [
            *(alarm(metadata, draft, now) for draft in alarms),
            *(decision_event(metadata, decision, now) for decision in decided),
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


def _status(body: Manifest) -> Status:
    try:
        return Status.model_validate(body.get("status") or {})
    except ValidationError:
        # Written under another version of the CRD; it is replaced as a whole.
        return Status()


def _text(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")
