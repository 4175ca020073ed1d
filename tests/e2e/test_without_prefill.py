"""``examples/single.yaml``, pinned by a kubelet that can; and the end of a deployment."""

from __future__ import annotations

import time

from oasis_operator.desired.metadata import COMPONENT_LABEL, DEPLOYMENT_LABEL
from oasis_runtime.contract import Metric
from oasis_runtime.tiers.numa import read_placement
from testbed import wait
from tests.e2e.conftest import Stage, example
from tests.e2e.served import Served

LOADING_GONE_SECONDS = 20
"""3 s before SIGTERM, 5 s from then on, and what Kubernetes takes; less than half of the grace
period of 48 s."""


def test_one_role_answers_from_prompt_to_end(single: Served) -> None:
    assert not single.pods("prefill")
    client = single.client()
    (model,) = client.models.list().data
    answer = client.chat.completions.create(
        model=model.id,
        messages=[{"role": "user", "content": "What is the capital of France? One word."}],
        max_tokens=8,
        temperature=0,
    )
    assert "Paris" in (answer.choices[0].message.content or "")
    assert single.condition("Ready")["status"] == "True"
    assert "PrefillReady" not in {item["type"] for item in single.status()["conditions"]}


def test_the_kubelet_pins_an_engine_that_must_be_aligned(single: Served) -> None:
    pod = single.engine("decode")
    placement = read_placement(single.kubectl("exec", pod.name, "--", "cat", "/proc/1/status"))
    assert len(placement.cpus) == 1
    assert pod.metrics().value(Metric.NUMA_ALIGNED) == 1
    assert single.status()["placement"]["decode"]["mode"] == "kubelet"


def test_deleting_it_removes_all_of_it(single: Served) -> None:
    assert len(single.objects()) > 10
    single.delete()
    wait.until(lambda: not single.objects(), "the end of its objects", 60)


def test_a_pod_that_still_loads_does_not_take_its_grace_period_to_end(stage: Stage) -> None:
    loading = stage.named("loading")
    manifest = example("single")
    manifest["metadata"]["name"] = loading.name
    loading.apply(manifest)

    def runs() -> bool:
        state = "{.items[*].status.containerStatuses[*].state.running.startedAt}"
        chosen = f"{DEPLOYMENT_LABEL}={loading.name},{COMPONENT_LABEL}=decode"
        return bool(loading.kubectl("get", "pods", "-l", chosen, f"-ojsonpath={state}"))

    wait.until(runs, "the start of the engine", 120, every=0.2)
    begun = time.monotonic()
    loading.delete()
    assert time.monotonic() - begun < LOADING_GONE_SECONDS
