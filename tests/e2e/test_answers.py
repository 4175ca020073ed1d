"""What a client of a deployment with two roles gets, and what that costs on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from openai import OpenAI

from examples.ask import Prometheus, ask, logbook, settled, snapshot
from oasis_runtime.contract import Metric
from testbed import wait
from tests.e2e.conftest import Stage, with_roles
from tests.e2e.served import Served

ENTRIES = 170
MAX_TOKENS = 192
"""Enough steps that the first ones, to which all is new, do not decide the rates."""


@dataclass(frozen=True)
class Asked:
    """A question that was answered, and what it added to the counters of the decode pod."""

    answer: str
    prompt_tokens: int
    first_token_seconds: float
    used: Mapping[str, float]


@pytest.fixture(scope="module")
def asked(stage: Stage) -> Asked:
    """The question of the demo, on some 6,000 tokens."""
    served = stage.serve(with_roles(decode_replicas=1))
    prometheus = Prometheus("http://prometheus.monitoring:9090", served.namespace, served.name)
    decode = served.engine("decode").name

    def scraped() -> bool:
        return bool(prometheus.query(f'up{{pod="{decode}"}} == 1'))

    wait.until(scraped, "the first scrape of the decode pod", 30, every=0.5)
    before = snapshot(prometheus)
    answer, tokens, first = ask(served.endpoint(), logbook(ENTRIES), MAX_TOKENS, ignore_eos=True)
    return Asked(answer, tokens, first, settled(prometheus, before))


def test_a_long_prompt_is_answered_as_a_stream(asked: Asked) -> None:
    assert 5_500 <= asked.prompt_tokens <= 6_500
    assert asked.answer.strip()
    assert asked.first_token_seconds > 0


def test_admission_moves_less_than_a_quarter_of_a_dense_transfer(asked: Asked) -> None:
    # 30 layers, 3 KV heads of 64 numbers, keys and values, fp32: what the prompt's whole KV is.
    whole = asked.prompt_tokens * 30 * 3 * 64 * 2 * 4
    assert asked.used["dense_bytes"] == pytest.approx(whole, rel=0.02)
    assert 0 < asked.used["admission"] < asked.used["dense_bytes"] / 4


def test_bytes_fetched_on_demand_are_counted(asked: Asked) -> None:
    assert 0 < asked.used["demand"] < asked.used["dense_bytes"]


def test_the_prompt_is_decoded_sparsely(asked: Asked) -> None:
    assert asked.used["sparse_steps"] > 16
    assert asked.used["dense_steps"] == 0


def test_more_than_nine_of_ten_selected_pages_are_resident(asked: Asked) -> None:
    assert asked.used["resident"] / asked.used["selected"] > 0.9


def test_each_of_the_five_rates_has_samples(asked: Asked) -> None:
    used = asked.used
    assert 0 <= used["late"] < used["selected"]
    assert 0 < used["agreed"] <= used["predicted"]
    assert 0 < used["recall_sum"] <= used["recall_count"]
    assert used["error_sum"] > 0


def test_no_read_was_stale(asked: Asked, prometheus: Prometheus) -> None:  # noqa: ARG001
    assert prometheus.one(Metric.STALE_READS) == 0
    assert prometheus.query(f'{Metric.STALE_READS}{{namespace="e2e"}}'), "no such series"


def test_engines_know_their_numa_node(asked: Asked, prometheus: Prometheus) -> None:  # noqa: ARG001
    found = prometheus.query(f'{Metric.NUMA_ALIGNED}{{namespace="e2e"}}')
    assert len(found) == 2
    assert set(found.values()) == {1.0}


def complete(client: OpenAI, prompt: str) -> str:
    answer = client.completions.create(
        model=client.models.list().data[0].id, prompt=prompt, max_tokens=24, temperature=0
    )
    return answer.choices[0].text


def test_the_status_tells_mode_and_rates(asked: Asked, disaggregated: Served) -> None:  # noqa: ARG001
    """Of the last minutes, so before the tests whose short prompts are decoded densely."""
    measured = ("NUMAAligned", "TransportHealthy", "SparsityHealthy")

    def told() -> bool:
        status = disaggregated.status()
        known = all(disaggregated.condition(kind).get("status") != "Unknown" for kind in measured)
        return status.get("mode") == "sparse" and "hitRate" in status and known

    wait.until(told, "conditions from metrics", 90, every=1)
    assert 0 < float(disaggregated.status()["hitRate"].rstrip("%")) <= 100
    for kind in ("NUMAAligned", "TransportHealthy"):
        condition = disaggregated.condition(kind)
        assert condition["status"] == "True", condition


def test_a_prompt_that_comes_again_is_not_prefilled_again_and_gets_the_same_answer(
    disaggregated: Served,
) -> None:
    client, prompt = disaggregated.client(), f"{logbook(60)}\nDay 61:"
    first = complete(client, prompt)
    before = disaggregated.engine("prefill").metrics()
    assert complete(client, prompt) == first
    assert first.strip()

    def reused() -> bool:
        hits = disaggregated.engine("prefill").metrics().since(before)
        return hits.value("vllm:prefix_cache_hits_total") > 1_000

    wait.until(reused, "tokens from the prefix cache", 20, every=0.5)


def test_requests_at_the_same_time_are_all_answered(disaggregated: Served) -> None:
    client = disaggregated.client()
    prompts = [f"Harbour {n}.\n{logbook(50 + 10 * n)}\nDay" for n in range(2)]
    with ThreadPoolExecutor(len(prompts)) as pool:
        answers = list(pool.map(lambda prompt: complete(client, prompt), prompts))
    assert all(answer.strip() for answer in answers)


def test_nothing_is_kept_for_requests_that_are_answered(disaggregated: Served) -> None:
    prefill = disaggregated.engine("prefill")
    wait.until(
        lambda: prefill.metrics().value(Metric.EXPORTS) == 0, "the end of exports", 30, every=0.5
    )
