from __future__ import annotations

import pytest

from tests.unit.operator.make import built, deployment, named


@pytest.mark.parametrize("component", ["prefill", "decode", "router"])
def test_a_drain_takes_one_pod_at_a_time_and_is_never_blocked(component: str) -> None:
    spec = named(built(deployment()), "PodDisruptionBudget", f"chat-{component}")["spec"]
    assert spec["maxUnavailable"] == 1
    assert "minAvailable" not in spec
    assert spec["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert spec["selector"]["matchLabels"]["oasiskv.io/component"] == component
