"""A pass over an OasisDeployment that changes or goes in the meantime."""

from __future__ import annotations

import copy
import logging
from typing import Any, cast

import pytest

from oasis_operator.cluster.devices import Devices
from oasis_operator.cluster.errors import ApiError, ConflictError, MissingError
from oasis_operator.cluster.queue import Key
from oasis_operator.cluster.reconciler import Reconciler
from oasis_operator.cluster.scaler import Scaler
from oasis_operator.cluster.store import Store
from oasis_operator.desired.metadata import Manifest
from oasis_operator.metrics import OperatorMetrics
from oasis_operator.signals.prometheus import Prometheus
from tests.unit.operator.api_server import NAMESPACE, Server
from tests.unit.operator.make import IMAGES, MODEL

KEY = Key(NAMESPACE, "chat")
INVALID = {"kv": {"blockTokens": "many"}}


def resource(spec: Manifest) -> Manifest:
    version = {"uid": "uid-1", "generation": 1, "resourceVersion": "3"}
    return {"metadata": {"name": "chat", "namespace": NAMESPACE, **version}, "spec": spec}


def reconciler(server: Any, store: Store) -> Reconciler:
    prometheus = Prometheus("", cast("Any", None))
    scaler = Scaler(prometheus, OperatorMetrics())
    return Reconciler(server, store, prometheus, Devices(server), scaler, IMAGES)


async def passed(server: Server, spec: Manifest, failure: ApiError | None = None) -> None:
    store = Store()
    store.keep_resource(resource(spec))
    server.failure = failure
    await reconciler(server, store).reconcile(KEY)


@pytest.mark.parametrize("spec", [{"model": MODEL, "prefill": {}}, INVALID])
@pytest.mark.parametrize("failure", [MissingError("not found"), ConflictError("another uid")])
async def test_one_that_is_deleted_before_its_status_is_written_is_no_failure(
    spec: Manifest, failure: ApiError, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        await passed(Server(), copy.deepcopy(spec), failure)
    assert caplog.records == []


async def test_engines_on_several_nodes_are_not_made_where_nothing_makes_their_pods() -> None:
    server = Server()
    await passed(server, {"model": MODEL, "engine": {"tensorParallelSize": 4, "nodes": 2}})
    (status,) = server.statuses
    (ready,) = status["conditions"]
    assert (ready["reason"], server.objects.keys()) == (
        "LeaderWorkerSetNotServed",
        {key for key in server.objects if key.kind == "Event"},
    )
    assert ready["message"].startswith("spec.engine.nodes is 2, and the cluster does not serve")


async def test_its_status_is_meant_for_it_and_for_no_later_one_of_its_name() -> None:
    class Strict(Server):
        async def apply_status(self, kind: Any, body: Manifest) -> Manifest:
            assert body["metadata"]["uid"] == "uid-1"
            return await super().apply_status(kind, body)

    server = Strict()
    await passed(server, INVALID)
    (status,) = server.statuses
    assert [item["reason"] for item in status["conditions"]] == ["InvalidSpec"]
