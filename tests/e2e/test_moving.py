"""A pod that is to go while requests come, and none that notices."""

from __future__ import annotations

from pathlib import Path

from testbed import model, wait
from tests.e2e.conftest import with_roles
from tests.e2e.load import ROUND, Load
from tests.e2e.served import READY_SECONDS, Pod, Served


def working(pods: list[Pod]) -> bool:
    return all(pod.running_requests() > 0 for pod in pods)


def test_a_decode_pod_less_fails_no_request(two_decodes: Served, tmp_path: Path) -> None:
    both = two_decodes.pods("decode")
    assert len(both) == 2
    with Load(two_decodes, model.make(), tmp_path) as load:
        wait.until(lambda: working(both), "both pods to have a request", 60, every=0.1)
        two_decodes.apply(with_roles(decode_replicas=1))
        wait.until(
            lambda: len(two_decodes.pods("decode")) == 1, "the end of one", READY_SECONDS, every=0.2
        )
        load.until_rounds(1)
        answered, failed = load.finish()
    assert failed == 0, load.words()
    assert answered >= 2 * ROUND
