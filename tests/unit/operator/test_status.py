from __future__ import annotations

from datetime import datetime

import pytest

from oasis_operator.api.status import Status
from oasis_operator.desired.metadata import Component
from oasis_operator.desired.rollout import Rollout
from oasis_operator.reconcile.conditions import Draft
from oasis_operator.reconcile.observed import Observed
from oasis_operator.reconcile.serving import NOBODY_SERVES
from oasis_operator.reconcile.status import (
    failed,
    failed_status,
    judge,
    same_status,
    status_body,
    status_of,
)
from oasis_operator.signals.prometheus import NoSignals, Signals
from tests.unit.operator.make import built, by_kubelet, deployment, progressed, stored

NOW = "2026-01-01T00:00:00Z"
GONE = NoSignals("PrometheusUnreachable", "gone")
ROLES = (Component.PREFILL, Component.DECODE)
TRAFFIC = Signals(resident_ratio=0.97, steps_by_mode={"sparse": 1.0})


def status(
    signals: Signals | NoSignals,
    *,
    ready: bool = True,
    before: Status | None = None,
    decodes: tuple[int, int] | None = None,
    routers: tuple[int, int] | None = None,
    rollout: Rollout | None = None,
) -> Status:
    """``decodes``, ``routers``: ready and wanted pods, where these are not as the others are."""
    od = deployment()
    objects = built(od)
    live = {
        key: progressed(body, ready=ready, established=ready) if key.kind == "Deployment" else body
        for key, body in stored(objects).items()
    }
    for component, given in (("decode", decodes), ("router", routers)):
        for key, body in live.items():
            if given is not None and key.kind == "Deployment" and key.name.endswith(component):
                count, body["spec"]["replicas"] = given
                body["status"] |= {"readyReplicas": count, "availableReplicas": count}
    observed = Observed(live)
    placed = by_kubelet(od)
    now = datetime.fromisoformat(NOW)
    known, step = before or Status(), rollout or objects.rollout
    drafts = judge(od, step, observed, signals, {}, placed, known, now)
    return status_of(od, step, observed, signals, drafts, placed, known, NOW)


def condition(given: Status, kind: str) -> str:
    return next(c.status for c in given.conditions or [] if c.type == kind)


def test_a_serving_deployment_is_ready_and_says_where() -> None:
    found = status(TRAFFIC)
    assert condition(found, "Ready") == "True"
    assert found.endpoint == "http://chat-router.team.svc:8080/v1"
    assert found.revision == found.serving_revision
    assert found.prefill is not None
    assert (found.prefill.replicas, found.prefill.ready_replicas) == (1, 1)
    assert (found.mode, found.hit_rate) == ("sparse", "0.97")


def test_readiness_does_not_hang_on_prometheus() -> None:
    assert condition(status(GONE), "Ready") == "True"


def test_without_prometheus_rates_stay_as_last_measured() -> None:
    found = status(GONE, before=status(TRAFFIC))
    assert (found.mode, found.hit_rate) == ("sparse", "0.97")
    assert condition(found, "SparsityHealthy") == "Unknown"


def test_scaling_up_stays_ready_with_the_pods_that_there_were() -> None:
    more = status(TRAFFIC, before=status(TRAFFIC), decodes=(1, 2))
    assert (condition(more, "Ready"), condition(more, "DecodeReady")) == ("True", "False")
    assert more.decode is not None
    assert more.decode.ready == "1/2"
    again = status(TRAFFIC, before=more, decodes=(1, 2))
    assert condition(again, "Ready") == "True"


def test_routers_that_are_added_do_not_end_ready_and_one_that_is_lost_does() -> None:
    before = status(TRAFFIC)
    assert condition(status(TRAFFIC, before=before, routers=(1, 2)), "Ready") == "True"
    assert condition(status(TRAFFIC, before=before, routers=(0, 2)), "Ready") == "False"
    assert condition(status(TRAFFIC, before=before, routers=(0, 1)), "Ready") == "False"


def test_a_pod_that_is_lost_ends_ready_until_all_are_there() -> None:
    two = status(TRAFFIC, before=status(TRAFFIC), decodes=(2, 2))
    lost = status(TRAFFIC, before=two, decodes=(1, 2))
    assert condition(lost, "Ready") == "False"
    assert condition(status(TRAFFIC, before=lost, decodes=(1, 2)), "Ready") == "False"


def test_scaling_down_stays_ready() -> None:
    three = status(TRAFFIC, before=status(TRAFFIC), decodes=(3, 3))
    assert condition(status(TRAFFIC, before=three, decodes=(2, 2)), "Ready") == "True"


def test_a_first_start_is_not_ready_with_some_of_its_pods() -> None:
    assert condition(status(TRAFFIC, decodes=(1, 2)), "Ready") == "False"


def test_a_role_without_a_ready_pod_is_never_ready() -> None:
    none = status(TRAFFIC, before=status(TRAFFIC), decodes=(0, 1))
    assert condition(none, "Ready") == "False"


def test_another_revision_is_not_ready_for_what_the_one_before_could_do() -> None:
    old = status(TRAFFIC).model_copy(update={"revision": "old", "serving_revision": "old"})
    assert condition(status(TRAFFIC, before=old, decodes=(1, 2)), "Ready") == "False"


def recreated() -> Status:
    """The pods of a revision that was measured have made room for those of the next."""
    before = status(TRAFFIC)
    assert before.revision is not None
    gap = Rollout("next", before.revision, {}, dict.fromkeys(ROLES, 0))
    return status(NOBODY_SERVES, before=before, rollout=gap)


def test_while_the_old_pods_make_room_nobody_serves_and_nothing_of_them_is_told() -> None:
    found = recreated()
    assert found.serving_revision is None
    assert (found.mode, found.hit_rate) == (None, None)
    reasons = {c.type: (c.status, c.reason) for c in found.conditions or []}
    for kind in ("NUMAAligned", "TransportHealthy", "SparsityHealthy"):
        assert reasons[kind] == ("Unknown", "NoPods")
    assert reasons["RouterReady"] == ("False", "Updating")


def test_a_revision_is_not_told_with_the_rates_of_the_one_before() -> None:
    found = status(GONE, before=recreated())
    assert (found.mode, found.hit_rate) == (None, None)


def test_a_part_of_the_old_pods_still_serves() -> None:
    before = status(TRAFFIC)
    assert before.revision is not None
    half = Rollout("next", before.revision, {}, {Component.DECODE: 1})
    found = status(TRAFFIC, before=before, rollout=half)
    assert (found.serving_revision, found.mode) == (before.revision, "sparse")


def test_the_same_observation_makes_the_same_status() -> None:
    first = status(TRAFFIC)
    assert same_status(first, status(TRAFFIC, before=first))


def test_the_order_of_conditions_is_no_difference() -> None:
    one = status(TRAFFIC)
    other = one.model_copy(update={"conditions": (one.conditions or [])[::-1]})
    assert same_status(one, other)


def test_a_changed_condition_is_a_difference() -> None:
    assert not same_status(status(TRAFFIC), status(TRAFFIC, ready=False))


def test_a_failure_to_apply_leaves_the_other_conditions() -> None:
    before = status(TRAFFIC)
    found = failed_status(before, failed("ApplyRefused", "422: no"), NOW, 9)
    assert condition(found, "Ready") == "False"
    assert condition(found, "PrefillReady") == "True"
    assert found.observed_generation == 9
    assert len(found.conditions or []) == len(before.conditions or [])


def test_a_failure_to_apply_is_an_alarm() -> None:
    (draft,) = failed("ApplyRefused", "422: no")
    assert draft == Draft("Ready", "False", "ApplyRefused", "422: no", alarming=True)


@pytest.mark.parametrize("signals", [TRAFFIC, GONE])
def test_the_status_reads_back(signals: Signals | NoSignals) -> None:
    found = status(signals)
    assert Status.model_validate(status_body(found)) == found


def test_the_row_of_a_deployment_says_model_and_ready_of_desired_pods() -> None:
    found = status(TRAFFIC)
    assert found.model == "tiny"
    assert found.decode is not None
    assert (found.decode.ready, found.decode.desired_replicas) == ("1/1", 1)


def test_what_is_not_there_yet_is_still_desired() -> None:
    od = deployment(decode={"replicas": 3})
    objects = built(od)
    found = status_of(od, objects.rollout, Observed(), GONE, [], by_kubelet(od), Status(), NOW)
    assert found.decode is not None
    assert found.decode.ready == "0/3"


def test_a_status_of_an_operator_that_knew_less_can_be_read() -> None:
    old = {"decode": {"replicas": 1, "readyReplicas": 1}, "hitRate": "0.97"}
    assert Status.model_validate(old).hit_rate == "0.97"
