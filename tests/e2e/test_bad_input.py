"""Bad input gets a sentence: what is wrong, and where."""

from __future__ import annotations

import copy
import json

import httpx
import pytest
from openai import BadRequestError

from examples.ask import logbook
from testbed import wait
from testbed.problem import Problem
from tests.e2e.conftest import Stage, example
from tests.e2e.served import Manifest, Served

ABSENT = "/models/not-there"


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ("yes", "kv_transfer_params"),
        ({"do_remote_prefill": True}, "remote_engine_id"),
        ({"do_remote_prefill": True, "remote_port": "8600"}, "remote_port"),
        ({"do_remote_decode": 1}, "do_remote_decode"),
    ],
)
def test_malformed_transfer_params_are_refused_and_the_engine_lives(
    disaggregated: Served, params: object, named: str
) -> None:
    decode = disaggregated.engine("decode")
    question = {"model": "smollm2-135m-instruct", "prompt": "One, two,", "max_tokens": 2}
    url = f"{decode.url}/v1/completions"
    refused = httpx.post(url, json={**question, "kv_transfer_params": params}, timeout=60)
    assert refused.status_code == 400, refused.text
    assert named in refused.json()["error"]["message"]
    assert httpx.post(url, json=question, timeout=60).status_code == 200
    assert disaggregated.engine("decode") == decode


def test_a_prompt_longer_than_the_model_is_the_clients_mistake(disaggregated: Served) -> None:
    client = disaggregated.client()
    with pytest.raises(BadRequestError, match="8192"):
        client.chat.completions.create(
            model="smollm2-135m-instruct",
            messages=[{"role": "user", "content": logbook(300)}],
            max_tokens=8,
        )


def small(name: str, model: Manifest) -> Manifest:
    """A deployment that finds room beside another one, as long as it loads no model."""
    manifest = copy.deepcopy(example("single"))
    manifest["metadata"]["name"] = name
    spec = manifest["spec"]
    spec["model"] = model
    spec["decode"]["resources"] = {"requests": {"cpu": "10m", "memory": "256Mi"}}
    spec["router"]["resources"] = {"requests": {"cpu": "10m", "memory": "32Mi"}}
    return manifest


@pytest.mark.parametrize(
    ("name", "model", "reason"),
    [
        ("in-image", {"image": {"path": ABSENT}}, "ConfigurationRejected"),
        ("on-node", {"hostPath": {"path": ABSENT}}, "PodNotStarted"),
    ],
)
def test_a_model_that_is_not_there_is_told_by_condition_and_event(
    stage: Stage, name: str, model: Manifest, reason: str
) -> None:
    broken = stage.named(name)
    broken.apply(small(name, model))
    try:
        wait.until(
            lambda: broken.condition("DecodeReady").get("reason") == reason,
            f"the reason {reason}",
            120,
            every=0.5,
        )
        condition = broken.condition("Ready")
        assert condition["status"] == "False"
        assert condition["reason"] == reason
        assert ABSENT in condition["message"]
        events = json.loads(broken.kubectl("get", "events", "-ojson"))["items"]
        told = [
            event["message"]
            for event in events
            if event["involvedObject"]["kind"] == "OasisDeployment"
            and event["involvedObject"]["name"] == name
        ]
        assert any(ABSENT in message for message in told), told
    finally:
        broken.delete()


@pytest.mark.parametrize(
    ("section", "value", "sentence"),
    [
        ("kv", {"budgetTokens": 1}, "spec.kv.budgetTokens"),
        ("kv", {"fastSize": "8Gi"}, "fastSize must not exceed hostSize"),
        ("engine", {"dtype": "int3"}, "spec.engine.dtype"),
        ("engine", {"maxLen": 5}, 'unknown field "spec.engine.maxLen"'),
    ],
)
def test_a_wrong_field_is_refused_with_the_schemas_words(
    stage: Stage, section: str, value: Manifest, sentence: str
) -> None:
    manifest = small("wrong", {"image": {"path": ABSENT}})
    manifest["spec"][section] |= value
    with pytest.raises(Problem) as refused:
        stage.named("wrong").apply(manifest)
    assert sentence in str(refused.value)
