"""A pass over an OasisDeployment that changes or goes in the meantime."""

from __future__ import annotations

import copy
import logging
from typing import Any, cast

import pytest

from oasis_operator.cluster.devices import Devices
from oasis_operator.cluster.errors import ApiError, ConflictError, MissingError
from oasis_operator.cluster.queue import Key
from oasis_operator.cluster.reconciler import AFTER_WRITING_SECONDS, Reconciler
from oasis_operator.cluster.scaler import Scaler
from oasis_operator.cluster.store import Store
from oasis_operator.desired.metadata import COMPONENT_LABEL, REVISION_LABEL, Manifest
from oasis_operator.metrics import OperatorMetrics
from oasis_operator.reconcile.observed import ObjectKey
from oasis_operator.signals.prometheus import Prometheus
from tests.unit.operator.api_server import NAMESPACE, Server
from tests.unit.operator.make import IMAGES, MODEL, pod

KEY = Key(NAMESPACE, "chat")
INVALID = {"kv": {"blockTokens": "many"}}


def resource(spec: Manifest) -> Manifest:
    version = {"uid": "uid-1", "generation": 1, "resourceVersion": "3"}
    return {"metadata": {"name": "chat", "namespace": NAMESPACE, **version}, "spec": spec}


def reconciler(server: Any, store: Store, *, others_wait: bool = False) -> Reconciler:
    prometheus = Prometheus("", cast("Any", None))
    scaler = Scaler(prometheus, OperatorMetrics())
    return Reconciler(
        server, store, prometheus, Devices(server), scaler, IMAGES, lambda: others_wait
    )


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
    assert ready["reason"] == "LeaderWorkerSetNotServed"
    assert {key.kind for key in server.objects} == {"Event"}
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


async def test_one_that_was_made_anew_gets_no_status_of_the_one_before() -> None:
    store = Store()

    class Replaced(Server):
        async def apply(self, kind: Any, body: Manifest, uid: str | None) -> Manifest:
            newer = resource({"model": MODEL})
            newer["metadata"] |= {"uid": "uid-2", "resourceVersion": "4000"}
            store.keep_resource(newer)
            return await super().apply(kind, body, uid)

    server = Replaced()
    store.keep_resource(resource({"model": MODEL}))
    await reconciler(server, store).reconcile(KEY)
    assert server.statuses == []


async def test_specs_of_others_go_before_the_report_of_a_pass_that_has_written() -> None:
    server, store = Server(), Store()
    store.keep_resource(resource({"model": MODEL, "prefill": {}}))
    busy = reconciler(server, store, others_wait=True)
    assert await busy.reconcile(KEY) == AFTER_WRITING_SECONDS
    assert (len(server.objects) > 0, server.statuses) == (True, [])
    assert (await busy.reconcile(KEY) or 0) > AFTER_WRITING_SECONDS
    assert len(server.statuses) == 1


def kubelet(server: Server, store: Store) -> None:
    """The cluster's controllers and kubelets have done their part."""
    for key, body in list(server.objects.items()):
        if key.kind in ("Deployment", "LeaderWorkerSet"):
            count = body["spec"]["replicas"]
            counts = ("replicas", "readyReplicas", "availableReplicas", "updatedReplicas")
            conditions = [
                {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
                {"type": "Available", "status": "True"},
            ]
            status = {**dict.fromkeys(counts, count), "conditions": conditions}
            version = str(int(body["metadata"]["resourceVersion"]) + 100)
            store.keep_object(
                server.put({**body, "status": status}, uid=f"{key.name}-1", resourceVersion=version)
            )
            labels = body["metadata"]["labels"]
            for number in range(count):
                told = {"component": labels[COMPONENT_LABEL], "revision": labels[REVISION_LABEL]}
                store.keep_pod(pod(f"{key.name}-{number}", ready=True, **told))


class Whole(Server):
    """Answers a status with the OasisDeployment that has it."""

    def __init__(self, stored: Manifest) -> None:
        super().__init__()
        self.stored = stored

    async def apply_status(self, kind: Any, body: Manifest) -> Manifest:
        await super().apply_status(kind, body)
        live = copy.deepcopy(self.stored)
        live["metadata"]["resourceVersion"] = str(1000 + len(self.statuses))
        return {**live, "status": body["status"]}


async def until_calm(passes: Reconciler, server: Server, store: Store) -> None:
    for _ in range(3):
        await passes.reconcile(KEY)
        kubelet(server, store)
    assert await passes.reconcile(KEY) is None


async def test_a_spec_that_comes_while_a_pass_waits_for_an_answer_is_carried_out() -> None:
    engine = {"tensorParallelSize": 2, "nodes": 2}
    newer = resource({"model": MODEL, "engine": engine, "kv": {"budgetTokens": 512}})
    newer["metadata"] |= {"generation": 2, "resourceVersion": "4000"}

    class Groups(Whole):
        store: Store | None = None

        async def served(self, _: Any) -> bool:
            if self.store is not None:
                self.stored = newer
                self.store.keep_resource(copy.deepcopy(newer))
            return True

    server, store = Groups(resource({"model": MODEL, "engine": engine})), Store()
    store.keep_resource(copy.deepcopy(server.stored))
    passes = reconciler(server, store)
    await until_calm(passes, server, store)
    old = {key for key in server.objects if key.kind == "LeaderWorkerSet"}
    server.store = store
    await passes.reconcile(KEY)
    await passes.reconcile(KEY)
    assert {key for key in server.objects if key.kind == "LeaderWorkerSet"} > old


async def test_one_with_nothing_to_do_is_built_again_only_for_news() -> None:
    stored = resource({"model": MODEL, "prefill": {}})
    server, store = Whole(stored), Store()
    store.keep_resource(copy.deepcopy(stored))
    passes = reconciler(server, store)
    await until_calm(passes, server, store)
    name = ObjectKey("Service", "chat-router")
    gone = server.objects.pop(name)
    assert await passes.reconcile(KEY) is None
    assert name not in server.objects
    store.drop_object(gone)
    await passes.reconcile(KEY)
    assert name in server.objects
