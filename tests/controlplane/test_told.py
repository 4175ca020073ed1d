"""What a person is told: events, logs and metrics about every OasisDeployment."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from testbed import wait
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.world import SECONDS, World, spec


def until_told(world: World, *reasons: str) -> None:
    def told() -> set[str]:
        return {event["reason"] for event in world.events("chat")}

    wait.until(lambda: set(reasons) <= told(), f"events {', '.join(reasons)}", SECONDS)


def test_logs_are_json_with_the_key_when_asked_for(
    world: World, start_operator: Callable[..., OperatorProcess], tmp_path: Path
) -> None:
    operator = start_operator("json", OASIS_LOG_FORMAT="json").until_leading()
    world.apply("chat", spec())
    world.until_ready("chat")
    operator.stop()
    records = [json.loads(line) for line in (tmp_path / "json.log").read_text().splitlines()]
    about = [r for r in records if r.get("oasisdeployment") == f"{world.namespace}/chat"]
    assert "applied Service chat-router" in [record["message"] for record in about]
    assert {record["level"] for record in about} == {"INFO"}


def test_decisions_are_told_once_each(world: World, operator: OperatorProcess) -> None:
    world.apply("chat", spec())
    world.until_ready("chat")
    old = world.status("chat")["revision"]
    world.apply("chat", spec(kv={"budgetTokens": 512}, decode={"replicas": 2}))
    until_told(world, "Serving", "RevisionStarted", "RevisionServes", "Scaled")
    world.until_ready("chat")
    operator.until_resynced(2)
    new = world.status("chat")["revision"]
    told = [(event["reason"], event["message"]) for event in world.events("chat")]
    assert ("RevisionServes", f"requests go to revision {new} instead of {old}") in told
    assert ("Scaled", "decode: 2 pods instead of 1") in told
    # Ready once for each of the two specs.
    reasons = Counter(reason for reason, _ in told)
    assert reasons == {"Serving": 2, "RevisionStarted": 1, "RevisionServes": 1, "Scaled": 1}
    assert {event["type"] for event in world.events("chat")} == {"Normal"}


def test_its_row_says_what_is_served_and_how_many_pods_are_ready(
    world: World, operator: OperatorProcess
) -> None:
    assert operator.leads()
    world.apply("chat", spec(decode={"replicas": 2}))
    world.until_ready("chat")
    heads, row = (line.split() for line in world.kubectl("get", "odep", "chat").splitlines())
    # Mode and hit rate are empty without a Prometheus.
    assert heads[:6] == ["NAME", "MODEL", "READY", "REASON", "PREFILL", "DECODE"]
    assert row[:6] == ["chat", "tiny", "True", "Serving", "1/1", "2/2"]


def test_conditions_and_pods_of_every_deployment_are_metrics(
    world: World, operator: OperatorProcess
) -> None:
    world.apply("chat", spec(decode={"replicas": 2}))
    world.until_ready("chat")
    chat = f'oasiskv_namespace="{world.namespace}"'

    def lines() -> set[str]:
        return {line for line in operator.exposition().splitlines() if chat in line}

    ready = {
        f'oasis_deployment_condition{{oasiskv_deployment="chat",{chat},type="Ready"}} 1.0',
        f'oasis_deployment_replicas{{component="decode",oasiskv_deployment="chat",{chat},'
        'state="ready"} 2.0',
    }
    wait.until(lambda: ready <= lines(), "the metrics of chat", SECONDS)
    world.kubectl("delete", "odep", "chat")
    wait.until(lambda: not lines(), "the end of its metrics", SECONDS)
