"""What is written and deleted is what was observed, whatever has its name by then."""

from __future__ import annotations

import pytest

from oasis_operator.cluster.applier import Applier
from oasis_operator.cluster.queue import Key
from oasis_operator.cluster.store import Store
from oasis_operator.desired.metadata import Manifest
from oasis_operator.reconcile.observed import ObjectKey, Observed
from oasis_operator.reconcile.ownership import Obstacle
from oasis_operator.reconcile.plan import Plan
from tests.unit.operator.api_server import Server
from tests.unit.operator.make import built, deployment, named

KEY, UID = Key("team", "chat"), "uid-1"
OURS = built(deployment())
SERVICE = named(OURS, "Service", "chat-router")
NAME = ObjectKey.of(SERVICE)


async def carried_out(server: Server, todo: Plan, *known: Manifest) -> tuple[Obstacle, ...]:
    observed = Observed({ObjectKey.of(body): body for body in known})
    return await Applier(server, Store()).carry_out(KEY, UID, todo, observed)  # type: ignore[arg-type]


def foreign(body: Manifest) -> Manifest:
    metadata = {key: body["metadata"][key] for key in ("name", "namespace")}
    return {**body, "metadata": metadata, "spec": {"mine": True}}


def only(*items: Manifest) -> Plan:
    return Plan(items, ())


async def test_a_name_that_is_free_gets_an_object() -> None:
    server = Server()
    assert await carried_out(server, only(SERVICE)) == ()
    assert server.objects[NAME]["spec"] == SERVICE["spec"]


async def test_an_object_of_somebody_else_stays_as_it_is() -> None:
    server = Server()
    theirs = server.put(foreign(SERVICE))
    assert await carried_out(server, only(SERVICE)) == (Obstacle(NAME, leaving=False),)
    assert server.objects[NAME] is theirs


async def test_one_that_took_the_name_after_the_last_look_stays_too() -> None:
    server = Server()
    seen = server.put(SERVICE)
    theirs = server.put(foreign(SERVICE))
    assert await carried_out(server, only(SERVICE), seen) == (Obstacle(NAME, leaving=False),)
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
    obstacles = await carried_out(server, Plan(OURS.objects, ()))
    assert obstacles == (Obstacle(ObjectKey.of(account), leaving=False),)
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
