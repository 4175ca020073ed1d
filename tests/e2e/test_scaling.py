"""Replicas follow what real engines publish."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from examples.ask import logbook
from testbed import wait
from tests.e2e.conftest import with_roles
from tests.e2e.served import Served

SCALING: dict[str, Any] = {
    "prefill": {"maxReplicas": 1},
    "decode": {"maxReplicas": 2},
    "warmUpSeconds": 0,
    "slo": {"ttftMilliseconds": 60000, "tpotMilliseconds": 60000},
}
CLIENTS = 8
DECIDED_SECONDS = 90


@pytest.fixture
def scaled(disaggregated: Served) -> Iterator[Served]:
    """The pair of the other tests, scaled for the time of a test."""
    manifest = with_roles(decode_replicas=1)
    manifest["spec"]["autoscaling"] = SCALING
    disaggregated.apply(manifest)
    yield disaggregated
    # Nothing but this ends what scaling decided: a field that is left out goes.
    disaggregated.kubectl("patch", "odep", "demo", "--type=json", "-p", REMOVE)
    wait.until(lambda: desired(disaggregated) == 1, "one decode pod", DECIDED_SECONDS)


REMOVE = '[{"op": "remove", "path": "/spec/autoscaling"}]'


def desired(served: Served) -> int:
    return int(served.status()["decode"]["desiredReplicas"])


def test_load_asks_for_another_decode_pod(scaled: Served) -> None:
    client = scaled.client(retries=1)

    def ask(number: int) -> None:
        client.completions.create(
            model="smollm2-135m-instruct",
            prompt=f"{logbook(20)}\nNote {number}",
            max_tokens=64,
            temperature=0,
        )

    ask(0)
    wait.until(
        lambda: scaled.condition("ScalingActive").get("status") == "True",
        "numbers of every pod",
        DECIDED_SECONDS,
    )
    assert desired(scaled) == 1
    with ThreadPoolExecutor(CLIENTS) as clients:
        answers = [clients.submit(ask, number) for number in range(3 * CLIENTS)]
        wait.until(lambda: desired(scaled) == 2, "another decode pod", DECIDED_SECONDS)
        for answer in answers:
            answer.cancel()
    events = scaled.kubectl("get", "events", "-o", "custom-columns=:.reason,:.message")
    assert "Autoscaled" in events
    assert "decode from 1 to 2 pods" in events
