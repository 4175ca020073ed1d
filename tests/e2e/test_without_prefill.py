"""``examples/single.yaml``, pinned by a kubelet that can; and the end of a deployment."""

from __future__ import annotations

from oasis_runtime.contract import Metric
from oasis_runtime.tiers.numa import read_placement
from testbed import wait
from tests.e2e.served import Served


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
