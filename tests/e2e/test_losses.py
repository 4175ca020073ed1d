"""Pods that die in the middle of an answer: clients that retry once get theirs, nothing hangs."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor

from openai import APIError, OpenAI

from examples.ask import logbook
from oasis_runtime.contract import Metric
from testbed import wait
from tests.e2e.conftest import LEASE_SECONDS
from tests.e2e.served import ANSWER_SECONDS, Pod, Served

MAX_TOKENS = 160
"""Enough that the answer takes many seconds."""


def long_answer(client: OpenAI) -> int:
    """Number of tokens of an answer on a long prompt."""
    answer = client.completions.create(
        model="smollm2-135m-instruct",
        prompt=f"{logbook(100)}\nDay",
        max_tokens=MAX_TOKENS,
        temperature=0,
        extra_body={"ignore_eos": True},
    )
    assert answer.usage is not None
    return answer.usage.completion_tokens


def answering(served: Served, request: Future[int]) -> Pod:
    """The decode pod that is at it."""
    found: list[Pod] = []

    def at_it() -> bool:
        assert not request.done(), "answered before anything could be killed"
        found[:] = [
            pod for pod in served.pods("decode") if pod.ready and pod.running_requests() > 0
        ]
        return bool(found)

    wait.until(at_it, "a decode pod to have the request", ANSWER_SECONDS)
    return found[0]


def test_the_decode_pod_dies_and_a_client_that_retries_once_is_answered_by_another(
    two_decodes: Served,
) -> None:
    prefill = two_decodes.engine("prefill")
    before = prefill.metrics()
    with ThreadPoolExecutor(1) as pool:
        request = pool.submit(long_answer, two_decodes.client(retries=1))
        victim = answering(two_decodes, request)
        two_decodes.kill(victim)
        killed = time.monotonic()

        def expired() -> bool:
            return prefill.metrics().since(before).value(Metric.LEASES_EXPIRED) == 1

        wait.until(expired, "the end of the dead reader's lease", 3 * LEASE_SECONDS, every=0.25)
        assert time.monotonic() - killed < LEASE_SECONDS + 5
        assert request.result(timeout=ANSWER_SECONDS) == MAX_TOKENS
    wait.until(
        lambda: prefill.metrics().value(Metric.EXPORTS) == 0, "the end of exports", 30, every=0.5
    )
    assert two_decodes.engine("prefill") == prefill


def test_the_prefill_pod_dies_and_the_answer_under_way_neither_hangs_nor_is_wrong(
    two_decodes: Served,
) -> None:
    with ThreadPoolExecutor(1) as pool:
        request = pool.submit(long_answer, two_decodes.client())
        answering(two_decodes, request)
        two_decodes.kill(two_decodes.engine("prefill"))
        failure = request.exception(timeout=ANSWER_SECONDS)
    if failure is None:
        assert request.result() == MAX_TOKENS
    else:
        # A client may retry these; 4xx would tell it that the mistake is its own.
        assert isinstance(failure, APIError), failure
        assert getattr(failure, "status_code", 500) >= 500
    two_decodes.until_ready()
    assert long_answer(two_decodes.client(retries=1)) == MAX_TOKENS
