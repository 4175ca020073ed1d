"""Whatever is written is refused in words or reconciled to a condition, and disturbs no other.

``OASIS_FUZZ_CASES=1000`` asks for more cases than the suite has time for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from oasis_operator.metrics import WRITES
from testbed import wait
from testbed.controlplane.bed import ControlPlane
from tests.controlplane.api_client import ApiClient
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.world import World, spec
from tests.unit.operator.specs import mutated, specs

CASES = int(os.environ.get("OASIS_FUZZ_CASES", "60"))
MOST_PODS = 100
"""More are refused by a quota, which a condition tells as any other reason."""
SECONDS = 30.0 + CASES / 5

ONCE = settings(
    max_examples=CASES // 2,
    phases=[Phase.generate],
    database=None,
    suppress_health_check=list(HealthCheck),
)


def cases() -> list[dict[str, Any]]:
    """The same at every run: half of them from the schema, half changed after that."""
    found: list[dict[str, Any]] = []

    @seed(1)
    @ONCE
    @given(specs())
    def regular(case: dict[str, Any]) -> None:
        found.append(case)

    @seed(2)
    @ONCE
    @given(mutated())
    def irregular(case: dict[str, Any]) -> None:
        found.append(case)

    regular()
    irregular()
    return found


REFUSAL = re.compile(
    r"(?:^|[ \[])spec(?:[.\[][^:]+)?: (?:[A-Z][a-z]+ value|Too (?:long|many|few)|Forbidden)\b.*: \S"
    r"|unknown field \"spec[.\[].+\"",
    re.DOTALL,
)
"""The path of a field and what is wrong with it, as the API server has it; or one without a path
where the whole spec is none."""


def readable(refusal: str) -> bool:
    """Says where and what, and is no failure of the server itself."""
    return bool(REFUSAL.search(refusal)) and "internal error" not in refusal.lower()


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        ('OasisDeployment "a" is invalid: spec.kv.hostSize: Invalid value: "x": must be y', True),
        ('"a" is invalid: [spec.a: Too many: 9: must have at most 8 items, spec.b: Required', True),
        ('strict decoding error: unknown field "spec.kv.hostsize"', True),
        ("Internal error occurred: spec.kv: Invalid value: 1: no", False),
        ("the name of the spec is not valid", False),
        ("json: cannot unmarshal", False),
        ("", False),
    ],
)
def test_a_refusal_says_where_and_what(refusal: str, expected: bool) -> None:
    assert readable(refusal) is expected


@pytest.fixture
def operator(start_operator: Callable[..., OperatorProcess]) -> OperatorProcess:
    return start_operator("fuzzed", OASIS_WRITES_PER_SECOND="500").until_leading()


@pytest.mark.timeout(300 + 2 * CASES)
def test_any_spec_is_refused_in_words_or_gets_a_condition(
    world: World, operator: OperatorProcess, control_plane: ControlPlane
) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few"},
        "spec": {"hard": {"count/pods": str(MOST_PODS)}},
    }
    world.apply("bystander", spec())
    world.until_ready("bystander")
    world.kubectl("create", "-f", "-", manifest=quota)
    server = ApiClient(control_plane)
    refusals = {}
    for number, case in enumerate(cases()):
        refusals[f"case-{number}"] = server.create(world.namespace, f"case-{number}", case)
    accepted = {name for name, refusal in refusals.items() if not refusal}
    assert [refusal for refusal in refusals.values() if refusal and not readable(refusal)] == []
    assert len(accepted) >= CASES / 10
    assert len(refusals) - len(accepted) >= CASES / 10

    def unjudged() -> list[str]:
        return [
            name
            for name, body in server.deployments(world.namespace).items()
            if not any(
                condition["type"] == "Ready"
                and condition["observedGeneration"] == body["metadata"]["generation"]
                for condition in body.get("status", {}).get("conditions", [])
            )
        ]

    try:
        wait.until(lambda: not unjudged(), "a condition on each", SECONDS, operator.require_alive)
    except Exception as late:
        raise AssertionError(
            f"{late}: {unjudged()} in {operator.log.read_text()[-3000:]}"
        ) from late
    world.apply("bystander", spec(security={"networkPolicy": False}))
    wait.until(lambda: not world.owned("networkpolicies", "bystander"), "another to go on", SECONDS)
    world.until_ready("bystander")
    assert 'result="error"} 0.0' in operator.exposition()
    assert {tuple(re.findall(r'"(\w+)"', labels)) for labels in operator.written()} == {*WRITES}
    assert "Traceback" not in operator.log.read_text()
