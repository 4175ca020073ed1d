"""``examples/single.yaml``, and the end of a deployment."""

from __future__ import annotations

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


def test_deleting_it_removes_all_of_it(single: Served) -> None:
    assert len(single.objects()) > 10
    single.delete()
    wait.until(lambda: not single.objects(), "the end of its objects", 60)
