from __future__ import annotations

import yaml

from tests.unit.operator.make import built, deployment, named


def test_it_holds_the_engines_configuration_and_never_changes() -> None:
    objects = built(deployment())
    found = named(objects, "ConfigMap", f"chat-{objects.rollout.target}-decode")
    assert found["immutable"] is True
    assert yaml.safe_load(found["data"]["engine.yaml"])["role"] == "decode"
