"""The operator may do what it does, and nothing else: the API server's audit log says what it did.

One operator goes through all that it does: start and election, deployments that become ready,
change, lose a role, cannot be scheduled, claim devices, and have engines on several nodes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from oasis_operator.cluster.election import LEASE_NAME
from testbed import wait
from testbed.controlplane.bed import ControlPlane
from testbed.controlplane.fakedevices import Machine, device_classes, resource_slices
from testbed.controlplane.fakenodes import fake_node
from testbed.problem import Problem
from tests.controlplane import release
from tests.controlplane.operator_process import NAMESPACE, OperatorProcess
from tests.controlplane.world import SECONDS, Manifest, World, fake, spec, waiting

USER = f"system:serviceaccount:{NAMESPACE}:{release.NAME}"
MACHINE = Machine("rights", gpus=[0], nics=[0], cpus=[0, 0])
LABEL = "test.oasiskv.io/machine"
CREATED = 201


@dataclass(frozen=True, order=True)
class Right:
    """One verb on one resource; ``name`` is empty for any object of it."""

    group: str
    resource: str
    verb: str
    name: str = ""


def granted(rules: Iterable[Mapping[str, Any]]) -> set[Right]:
    """What roles allow, one by one."""
    return {
        Right(group, resource, verb, name)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


def used(requests: Iterable[Mapping[str, Any]]) -> set[Right]:
    """What requests needed. A server-side apply that makes an object needs ``create`` as well."""
    found = set()
    for request in requests:
        about = request.get("objectRef")
        if about is None:
            continue  # Discovery, which everybody may read.
        resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
        made = request["verb"] == "patch" and _code(request) == CREATED
        for verb in (request["verb"], *(["create"] if made else [])):
            for name in ("", about.get("name", "")):
                found.add(Right(about.get("apiGroup", ""), resource, verb, name))
    return found


def refused(requests: Iterable[Mapping[str, Any]]) -> list[str]:
    return [
        f"{request['verb']} {request['requestURI']}"
        for request in requests
        if _code(request) == 403
    ]


def _code(request: Mapping[str, Any]) -> int:
    return int(request.get("responseStatus", {}).get("code", 0))


def request(verb: str, resource: str, code: int = 200, **about: str) -> dict[str, Any]:
    """A line of the audit log."""
    reference = {"resource": resource, **about}
    return {
        "verb": verb,
        "requestURI": f"/api/{resource}",
        "objectRef": reference,
        "responseStatus": {"code": code},
    }


def test_a_right_that_nothing_needed_is_found() -> None:
    rules = [{"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["list", "get"]}]
    requests = [request("list", "pods"), request("get", "pods", subresource="log", name="p")]
    assert granted(rules) - used(requests) == {
        Right("", "pods", "get"),
        Right("", "pods/log", "list"),
    }


def test_an_apply_that_makes_an_object_creates_and_another_does_not() -> None:
    assert Right("", "services", "create") in used([request("patch", "services", 201, name="a")])
    assert Right("", "services", "create") not in used([request("patch", "services", name="a")])


def test_a_right_to_one_object_is_not_needed_for_another() -> None:
    rules = [{"apiGroups": [""], "resources": ["leases"], "verbs": ["get"], "resourceNames": ["a"]}]
    assert granted(rules) - used([request("get", "leases", name="b")])
    assert not granted(rules) - used([request("get", "leases", name="a")])


def test_a_request_that_was_forbidden_is_found() -> None:
    assert refused([request("list", "secrets", 403), request("list", "pods")]) == [
        "list /api/secrets"
    ]


@pytest.fixture
def machine(installed: ControlPlane) -> Iterator[None]:
    node = fake_node(MACHINE.name)
    node["metadata"]["labels"][LABEL] = MACHINE.name
    items = [*device_classes(), node, *resource_slices(MACHINE)]
    listed = {"apiVersion": "v1", "kind": "List", "items": items}
    installed.kubectl("apply", "-f", "-", manifest=listed)
    yield
    installed.kubectl("delete", "-f", "-", "--wait=false", manifest=listed)


def claiming(cpus: int, replicas: int) -> Manifest:
    decode = {
        "devices": {"gpu": {}, "cpu": {"count": cpus}},
        "nodeSelector": {LABEL: MACHINE.name},
        "replicas": replicas,
    }
    topology = {"numa": {"policy": "required", "mode": "dra"}}
    # There are no devices for two revisions at once.
    updates = {"strategy": "Recreate"}
    return spec(prefill=None, decode=decode, topology=topology, updates=updates)


def on_two_nodes(replicas: int, **kv: Any) -> Manifest:
    engine = {"tensorParallelSize": 2, "nodes": 2}
    return spec(prefill=None, engine=engine, decode={"replicas": replicas}, kv=kv or None)


def go_through_all(world: World, operator: OperatorProcess) -> None:
    """All that an operator does."""
    world.apply("chat", spec(autoscaling={"owner": "external"}))
    world.apply("stuck", spec(prefill=None, decode={"nodeSelector": {"gpu": "none"}}))
    world.apply("slow", spec(prefill=None, decode=fake("never-ready")))
    world.apply("pinned", claiming(cpus=1, replicas=1))
    world.apply("large", on_two_nodes(replicas=1))
    world.until_ready("chat")
    wait.until(
        lambda: all("status" in role for role in world.owned("oasisroles", "chat")),
        "the status of what others scale",
        SECONDS,
    )
    # A role less, and another revision of the other one: what belonged to them goes.
    world.apply("chat", spec(prefill=None, kv={"budgetTokens": 512}))
    world.until_ready("large")
    world.apply("large", on_two_nodes(replicas=1, budgetTokens=512))
    world.until_condition("stuck", "DecodeReady", "False", "Unschedulable")
    world.until_condition("slow", "DecodeReady", "False", "Starting")
    # What happens twice is told and counted.
    pod = world.until_pod("slow", "decode")
    for _ in range(2):
        ended = {"terminated": {"exitCode": 1, "reason": "Error"}}
        world.patch_pod_status(pod, waiting({"running": {}}, ended))
        world.until_condition("slow", "DecodeReady", "False", "Crashed")
        world.patch_pod_status(pod, waiting({"running": {}}))
        world.until_condition("slow", "DecodeReady", "False", "Starting")
    world.until_ready("pinned")
    # More pods than the machine has devices for, and then claims of another content.
    world.apply("pinned", claiming(cpus=1, replicas=2))
    world.until_condition("pinned", "DecodeReady", "False")
    operator.until_resynced(2)
    old = [item["metadata"]["name"] for item in world.owned("resourceclaimtemplates", "pinned")]
    world.apply("pinned", claiming(cpus=2, replicas=1))

    def left() -> list[str]:
        prefill = "services,pdb,networkpolicies,deployments,configmaps"
        chosen = "oasiskv.io/deployment=chat,oasiskv.io/component=prefill"
        parts = world.get(prefill, "-l", chosen).get("items", [])
        parts += world.owned("oasisroles", "chat")
        parts += world.owned("configmaps", "chat")[1:]
        parts += world.owned("leaderworkersets", "large")[1:]
        templates = world.owned("resourceclaimtemplates", "pinned")
        parts += [item for item in templates if item["metadata"]["name"] in old]
        return [f"{part['kind']} {part['metadata']['name']}" for part in parts]

    try:
        wait.until(lambda: not left(), "the end of what is not needed", SECONDS)
    except Problem as late:
        raise AssertionError(f"{late}: {left()}") from late


@pytest.mark.usefixtures("machine", "groups")
def test_the_operator_has_the_rights_that_it_uses_and_no_others(
    world: World, start_operator: Callable[..., OperatorProcess]
) -> None:
    plane = world.plane
    log = plane.layout.audit_log
    start = log.stat().st_size
    # The first replica of a new cluster makes the Lease.
    plane.kubectl("-n", NAMESPACE, "delete", "lease", LEASE_NAME, "--ignore-not-found")
    operator = start_operator("rights").until_leading()
    go_through_all(world, operator)
    assert operator.stop() == 0
    with log.open() as lines:
        lines.seek(start)
        written = [json.loads(line) for line in lines]
    requests = [item for item in written if item["user"]["username"] == USER]
    assert refused(requests) == []
    assert sorted(granted(installed_rules(plane)) - used(requests)) == []


def installed_rules(plane: ControlPlane) -> list[Mapping[str, Any]]:
    """Of every role that the chart gives to the operator."""
    kinds = ("clusterrole", f"{NAMESPACE}:{release.NAME}"), ("role", release.NAME)
    rules: list[Mapping[str, Any]] = []
    for kind, name in kinds:
        rules += json.loads(plane.kubectl("-n", NAMESPACE, "get", kind, name, "-o", "json"))[
            "rules"
        ]
    return rules
