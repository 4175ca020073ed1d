from __future__ import annotations

from oasis_operator.desired.metadata import REVISION_LABEL
from oasis_operator.desired.service import endpoint
from tests.unit.operator.make import built, deployment, named


def test_each_role_has_a_headless_service_over_all_revisions() -> None:
    for component in ("prefill", "decode"):
        spec = named(built(deployment()), "Service", f"chat-{component}")["spec"]
        assert spec["clusterIP"] == "None"
        assert spec["selector"]["oasiskv.io/component"] == component
        assert REVISION_LABEL not in spec["selector"]


def test_prefill_pods_are_found_also_when_they_are_ending() -> None:
    """By a decode pod that is ending, and has to know what they compute."""
    objects = built(deployment())
    assert named(objects, "Service", "chat-prefill")["spec"]["publishNotReadyAddresses"] is True
    assert "publishNotReadyAddresses" not in named(objects, "Service", "chat-decode")["spec"]


def test_the_endpoint_selects_the_routers_of_the_revision_that_serves() -> None:
    objects = built(deployment())
    spec = named(objects, "Service", "chat-router")["spec"]
    assert spec["selector"][REVISION_LABEL] == objects.rollout.target
    assert spec["ports"][0]["port"] == 8080
    assert endpoint(deployment()) == "http://chat-router.team.svc:8080/v1"


def test_a_single_role_has_no_prefill_service() -> None:
    names = [o["metadata"]["name"] for o in built(deployment(prefill=None)).objects]
    assert "chat-prefill" not in names
