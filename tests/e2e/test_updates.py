"""Pods that come and go under load, and no request that notices."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import model, wait
from tests.e2e.conftest import Stage, with_roles
from tests.e2e.load import Load
from tests.e2e.served import READY_SECONDS, Manifest, Pod, Served

MODEL = "smollm2-135m-instruct"


def small(decode_replicas: int) -> Manifest:
    """With so little CPU asked for that two revisions find room on the node."""
    manifest = with_roles(decode_replicas)
    spec = manifest["spec"]
    for role in ("prefill", "decode"):
        spec[role]["resources"]["requests"]["cpu"] = "200m"
    spec["updates"]["strategy"] = "Switch"
    return manifest


@pytest.fixture(scope="module")
def served(stage: Stage) -> Served:
    """One prefill and two decode pods, Ready."""
    return stage.serve(small(decode_replicas=2))


@pytest.fixture
def load(served: Served, tmp_path: Path) -> Iterator[Load]:
    url = served.endpoint().removesuffix("/v1")
    with Load(url, MODEL, model.make(), tmp_path) as running:
        running.until_rounds(1)
        yield running


def working(pods: list[Pod]) -> bool:
    return all(pod.running_requests() > 0 for pod in pods)


def test_a_decode_pod_less_fails_no_request(served: Served, load: Load) -> None:
    both = served.pods("decode")
    assert len(both) == 2
    wait.until(lambda: working(both), "both pods to have a request", 60, every=0.1)
    served.apply(small(decode_replicas=1))
    wait.until(
        lambda: len(served.pods("decode")) == 1, "the end of one pod", READY_SECONDS, every=0.2
    )
    load.until_rounds(1)
    answered, failed = load.finish()
    assert failed == 0, load.words()
    assert answered >= 24


def test_another_revision_fails_no_request(served: Served, load: Load) -> None:
    before = {pod.uid for pod in (*served.pods("prefill"), *served.pods("decode"))}
    changed = copy.deepcopy(small(decode_replicas=1))
    changed["spec"]["kv"]["budgetTokens"] = 512
    served.apply(changed)

    def updated() -> bool:
        now = {pod.uid for pod in (*served.pods("prefill"), *served.pods("decode"))}
        return served.condition("Ready").get("status") == "True" and not now & before

    wait.until(updated, "the new pods alone", 2 * READY_SECONDS, every=0.5)
    load.until_rounds(1)
    answered, failed = load.finish()
    assert failed == 0, load.words()
    assert answered >= 24
