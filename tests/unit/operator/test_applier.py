"""What is written and deleted is what was observed, whatever has its name by then."""

from __future__ import annotations

import pytest

from oasis_operator.cluster.applier import Applier, Carried
from oasis_operator.cluster.contests import AT_ONCE, FIRST_PAUSE_SECONDS
from oasis_operator.cluster.errors import MissingError, RefusedError
from oasis_operator.cluster.queue import Key
from oasis_operator.cluster.store import Store
from oasis_operator.desired.metadata import Manifest
from oasis_operator.reconcile.observed import ObjectKey, Observed
from oasis_operator.reconcile.ownership import TakenName
from oasis_operator.reconcile.plan import Plan
from tests.unit.operator.api_server import Server
from tests.unit.operator.make import built, deployment, named

KEY, UID = Key("team", "chat"), "uid-1"
OURS = built(deployment())
SERVICE = named(OURS, "Service", "chat-router")
NAME = ObjectKey.of(SERVICE)


async def carried(server: Server, store: Store, todo: Plan, *known: Manifest) -> Carried:
    observed = Observed({ObjectKey.of(body): body for body in known})
    return await Applier(server, store).carry_out(KEY, UID, todo, observed)  # type: ignore[arg-type]


async def carried_out(server: Server, todo: Plan, *known: Manifest) -> tuple[TakenName, ...]:
    return (await carried(server, Store(), todo, *known)).taken


def foreign(body: Manifest) -> Manifest:
    metadata = {key: body["metadata"][key] for key in ("name", "namespace")}
    return {**body, "metadata": metadata, "spec": {"mine": True}}


def only(*items: Manifest) -> Plan:
    return Plan(items, ())


async def test_a_name_that_is_free_gets_an_object() -> None:
    server = Server()
    assert await carried_out(server, only(SERVICE)) == ()
    assert server.objects[NAME]["spec"] == SERVICE["spec"]


async def test_it_is_known_whether_anything_is_different_now() -> None:
    server, store = Server(), Store()
    assert (await carried(server, store, only(SERVICE))).changed
    live = server.objects[NAME]
    assert not (await carried(server, store, only(SERVICE), live)).changed
    assert not (await carried(server, store, only(), live)).changed
    assert (await carried(server, store, Plan((), (NAME,)), live)).changed


async def test_an_object_of_somebody_else_stays_as_it_is() -> None:
    server = Server()
    theirs = server.put(foreign(SERVICE))
    assert await carried_out(server, only(SERVICE)) == (TakenName(NAME, leaving=False),)
    assert server.objects[NAME] is theirs


async def test_one_that_took_the_name_after_the_last_look_stays_too() -> None:
    server = Server()
    seen = server.put(SERVICE)
    theirs = server.put(foreign(SERVICE))
    assert await carried_out(server, only(SERVICE), seen) == (TakenName(NAME, leaving=False),)
    await carried_out(server, Plan((), (NAME,)), seen)
    assert server.objects[NAME] is theirs


async def test_ours_that_lost_the_label_it_is_found_by_is_written() -> None:
    server = Server()
    unseen = server.put(SERVICE, labels={})
    assert await carried_out(server, only(SERVICE)) == ()
    assert server.objects[NAME]["metadata"]["uid"] == unseen["metadata"]["uid"]
    assert server.objects[NAME]["metadata"]["labels"] == SERVICE["metadata"]["labels"]


async def test_ours_that_went_after_the_last_look_is_made_again() -> None:
    server = Server()
    seen = server.put(SERVICE)
    del server.objects[NAME]
    assert await carried_out(server, only(SERVICE), seen) == ()
    assert NAME in server.objects


async def test_everything_but_what_needs_it_goes_on() -> None:
    server = Server()
    account = named(OURS, "ServiceAccount", "chat-router")
    server.put(foreign(account))
    taken_names = await carried_out(server, Plan(OURS.objects, ()))
    assert taken_names == (TakenName(ObjectKey.of(account), leaving=False),)
    missing = {ObjectKey.of(item) for item in OURS.objects} - server.objects.keys()
    revision = OURS.rollout.target
    assert missing == {
        ObjectKey("RoleBinding", "chat-router"),
        ObjectKey("Deployment", f"chat-{revision}-router"),
    }


@pytest.mark.parametrize("taken", [True, False])
async def test_pods_make_no_room_for_others_that_cannot_come(taken: bool) -> None:
    server = Server()
    revision = OURS.rollout.target
    config = named(OURS, "ConfigMap", f"chat-{revision}-decode")
    if taken:
        server.put(foreign(config))
    old = server.put(SERVICE, name="chat-old")
    todo = Plan(OURS.objects, (ObjectKey.of(old),), {ObjectKey.of(old): 1})
    await carried_out(server, todo, old)
    assert (ObjectKey.of(old) in server.objects) == taken
    assert server.scaled == ({} if taken else {"chat-old": 1})


def edited(body: Manifest) -> Manifest:
    fields: Manifest = {"f:spec": {"f:type": {}}}
    entry = {"manager": "helm", "apiVersion": body["apiVersion"], "fieldsV1": fields}
    return {**body, "metadata": {**body["metadata"], "managedFields": [entry]}}


async def test_what_others_write_again_and_again_is_undone_and_then_left_for_a_while() -> None:
    server, store = Server(), Store()
    applier = Applier(server, store)  # type: ignore[arg-type]
    results = []
    for _ in range(AT_ONCE + 1):
        live = server.put(edited(SERVICE))
        observed = Observed({NAME: live})
        results.append(await applier.carry_out(KEY, UID, only(SERVICE), observed))
    assert [result.contested for result in results[:-2]] == [()] * (AT_ONCE - 1)
    assert results[-2].contested == (NAME,)
    assert server.objects[NAME] is live
    assert results[-1].contested == ()
    assert 0 < (results[-1].again_seconds or 0) <= FIRST_PAUSE_SECONDS


async def test_a_kind_that_the_cluster_does_not_serve_is_refused() -> None:
    class WithoutServices(Server):
        async def apply(self, *_: object) -> Manifest:
            raise MissingError("the server could not find the requested resource")

    with pytest.raises(RefusedError, match=r"Service chat-router: .* does not know this kind"):
        await carried_out(WithoutServices(), only(SERVICE))
