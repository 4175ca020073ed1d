"""Replicas follow the load that Prometheus sees, and no request fails while they do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from examples.ask import Prometheus
from testbed import model, versions, wait
from tests.e2e.conftest import NAMESPACE, Stage, with_roles
from tests.e2e.load import Load
from tests.e2e.served import READY_SECONDS, Manifest, Served

DECIDED_SECONDS = 150
"""A minute of measurements, the operator's interval, and a margin for a busy machine."""
BUSY_ANSWER = 96
"""Tokens of an answer. At the pace of the load more than two requests are then in work at any
time, which is what a decode pod with ``maxNumSeqs: 4`` is meant to have."""


def scaled() -> Manifest:
    """One decode pod, or two when they are needed, by measurements as young as they can be."""
    manifest = with_roles(decode_replicas=1)
    manifest["spec"]["autoscaling"] = {
        "prefill": {"maxReplicas": 1},
        "decode": {"maxReplicas": 2},
        "warmUpSeconds": 0,
        "scaleDownSeconds": 0,
        # What two cores do to latencies is not what is tested.
        "slo": {"ttftMilliseconds": 600000, "tpotMilliseconds": 60000},
    }
    return manifest


@contextmanager
def asking(served: Served) -> Iterator[list[str]]:
    """One request after the other, each answered in full before the next; yields the answers."""
    answers: list[str] = []
    ended = threading.Event()

    def ask() -> None:
        client = served.client()
        while not ended.is_set():
            prompt = f"Note {len(answers)}: "
            done = client.completions.create(
                model=versions.MODEL_NAME, prompt=prompt, max_tokens=16, temperature=0
            )
            answers.append(done.choices[0].text)

    with ThreadPoolExecutor(1) as pool:
        asker = pool.submit(ask)
        try:
            yield answers
        finally:
            ended.set()
        asker.result()


def desired(served: Served) -> int:
    return int(served.status()["decode"]["desiredReplicas"])


def test_load_adds_a_pod_and_its_end_takes_it_away(
    stage: Stage, prometheus: Prometheus, tmp_path: Path
) -> None:
    served = stage.serve(scaled())
    wait.until(
        lambda: served.condition("ScalingActive").get("status") == "True",
        "numbers of every pod",
        DECIDED_SECONDS,
    )
    assert desired(served) == 1
    with asking(served) as answers:
        with Load(served, model.make(), tmp_path, BUSY_ANSWER) as load:
            wait.until(lambda: desired(served) == 2, "the need of two pods", DECIDED_SECONDS)

            def shared() -> bool:
                pods = served.pods("decode")
                return len(pods) == 2 and all(p.ready and p.running_requests() for p in pods)

            wait.until(shared, "both pods to have requests", READY_SECONDS, every=0.5)
            _, failed = load.finish()
        assert failed == 0, load.words()
        wait.until(lambda: desired(served) == 1, "the need of one pod", DECIDED_SECONDS)
        wait.until(lambda: len(served.pods("decode")) == 1, "the end of one", READY_SECONDS)
        served.until_ready()
        seen = len(answers)
        wait.until(lambda: len(answers) > seen, "an answer by the pod that is left", READY_SECONDS)
    events = served.kubectl("get", "events", "-o", "custom-columns=:.reason,:.message")
    told = [line for line in events.splitlines() if line.startswith("Autoscaled")]
    assert any("decode from 1 to 2 pods" in line for line in told), events
    assert any("decode from 2 to 1 pods" in line for line in told), events
    decided = f'{{oasiskv_namespace="{NAMESPACE}",oasiskv_deployment="demo",role="decode"}}'
    assert list(prometheus.query(f"oasis_desired_replicas{decided}").values()) == [1]
