from __future__ import annotations

from tests.unit.operator.make import built, deployment, named, router_name


def test_the_router_may_find_pods_in_its_namespace_and_nothing_else() -> None:
    objects = built(deployment())
    assert named(objects, "Role", "chat-router")["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}
    ]
    binding = named(objects, "RoleBinding", "chat-router")
    assert binding["roleRef"]["name"] == "chat-router"
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "chat-router", "namespace": "team"}
    ]


def test_it_runs_as_that_account() -> None:
    router = named(built(deployment()), "Deployment", router_name(deployment()))
    assert router["spec"]["template"]["spec"]["serviceAccountName"] == "chat-router"
    account = named(built(deployment()), "ServiceAccount", "chat-router")
    assert account["automountServiceAccountToken"] is True
