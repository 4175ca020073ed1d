from __future__ import annotations

import pytest

from tests.unit.operator.make import built, deployment, named


@pytest.mark.parametrize(("component", "peer"), [("prefill", "decode"), ("decode", "prefill")])
def test_all_ports_but_http_are_open_to_the_engines_of_the_deployment_alone(
    component: str, peer: str
) -> None:
    spec = named(built(deployment()), "NetworkPolicy", f"chat-{component}")["spec"]
    http, transfer = spec["ingress"]
    assert http == {"ports": [{"port": 8000, "protocol": "TCP"}]}
    other, own = transfer["from"]
    assert other["podSelector"]["matchLabels"] == {
        "oasiskv.io/deployment": "chat",
        "oasiskv.io/component": peer,
    }
    assert own["podSelector"] == spec["podSelector"]
    assert not any("namespaceSelector" in source for source in (other, own))
    assert "ports" not in transfer


def test_it_covers_all_pods_of_the_roles_engines() -> None:
    spec = named(built(deployment()), "NetworkPolicy", "chat-decode")["spec"]
    assert spec["policyTypes"] == ["Ingress"]
    assert spec["podSelector"]["matchLabels"] == {"oasiskv.io/deployment": "chat"}
    (component,) = spec["podSelector"]["matchExpressions"]
    assert component["values"] == ["decode", "decode-worker"]


def test_a_cluster_with_policies_of_its_own_can_do_without() -> None:
    objects = built(deployment(security={"networkPolicy": False})).objects
    assert "NetworkPolicy" not in {item["kind"] for item in objects}
