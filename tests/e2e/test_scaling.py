"""Replicas follow the load that Prometheus sees, and no request fails while they do."""

from __future__ import annotations

from pathlib import Path

from examples.ask import Prometheus
from testbed import model, wait
from tests.e2e.conftest import NAMESPACE, Stage, with_roles
from tests.e2e.load import Load
from tests.e2e.served import READY_SECONDS, Manifest, Served

DECIDED_SECONDS = 150
"""A minute of measurements, the operator's interval, and a margin for a busy machine."""
BUSY_ANSWER = 96
"""Tokens of an answer. At the pace of the load more than two requests are then in work at any
time, which is what a decode pod with ``maxNumSeqs: 4`` is meant to have."""


CALM_PER_SECOND = 0.5
"""Less than one request is then in work at most times, for which one pod is enough."""


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
    with Load(served, model.make(), tmp_path / "busy", BUSY_ANSWER) as busy:
        wait.until(lambda: desired(served) == 2, "the need of two pods", DECIDED_SECONDS)

        def shared() -> bool:
            pods = served.pods("decode")
            return len(pods) == 2 and all(p.ready and p.running_requests() for p in pods)

        wait.until(shared, "both pods to have requests", READY_SECONDS, every=0.5)
        with Load(served, model.make(), tmp_path / "calm", per_second=CALM_PER_SECOND) as calm:
            _, failed = busy.finish()
            assert failed == 0, busy.words()
            wait.until(lambda: desired(served) == 1, "the need of one pod", DECIDED_SECONDS)
            wait.until(lambda: len(served.pods("decode")) == 1, "the end of one", READY_SECONDS)
            calm.until_rounds(2)  # The first of them began before there was one pod only.
            _, failed = calm.finish()
            assert failed == 0, calm.words()
    served.until_ready()
    events = served.kubectl("get", "events", "-o", "custom-columns=:.reason,:.message")
    told = [line for line in events.splitlines() if line.startswith("Autoscaled")]
    assert any("decode from 1 to 2 pods" in line for line in told), events
    assert any("decode from 2 to 1 pods" in line for line in told), events
    decided = f'{{oasiskv_namespace="{NAMESPACE}",oasiskv_deployment="demo",role="decode"}}'
    assert list(prometheus.query(f"oasis_desired_replicas{decided}").values()) == [1]
