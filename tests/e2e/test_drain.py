"""A node that is drained while requests come, and none that notices."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from oasis_operator.desired.metadata import COMPONENT_LABEL, DEPLOYMENT_LABEL
from testbed import model, wait
from tests.e2e.load import ROUND, Load
from tests.e2e.served import READY_SECONDS, Served

DRAIN_SECONDS = 2 * READY_SECONDS


def drain(served: Served, node: str) -> str:
    """Evicts the decode pods as an administrator does; what kubectl prints once all are gone."""
    decode = f"{DEPLOYMENT_LABEL}={served.name},{COMPONENT_LABEL}=decode"
    options = (f"--pod-selector={decode}", "--delete-emptydir-data", f"--timeout={DRAIN_SECONDS}s")
    return served.cluster.kubectl("drain", node, *options)


def test_a_drain_takes_one_decode_pod_at_a_time_and_fails_no_request(
    two_decodes: Served, tmp_path: Path
) -> None:
    """With one node, which takes new pods again as soon as the first pod is gone from it."""
    before = {pod.uid for pod in two_decodes.pods("decode")}
    assert len(before) == 2
    (node,) = two_decodes.kubectl("get", "nodes", "-ojsonpath={.items[*].metadata.name}").split()

    def left() -> set[str]:
        return before & {pod.uid for pod in two_decodes.pods("decode") if not pod.ending}

    with Load(two_decodes, model.make(), tmp_path) as load, ThreadPoolExecutor(1) as pool:
        drained = pool.submit(drain, two_decodes, node)
        try:
            wait.until(lambda: len(left()) == 1, "the eviction of one", READY_SECONDS, every=0.2)
            load.until_rounds(1)
            assert len(left()) == 1, "the second went before the first was replaced"
        finally:
            two_decodes.kubectl("uncordon", node)
        drained.result()
        assert not left()
        two_decodes.until_ready()
        load.until_rounds(1)
        answered, failed = load.finish()
    assert failed == 0, load.words()
    assert answered >= 2 * ROUND
