from __future__ import annotations

import re
from dataclasses import asdict

from oasis_operator.signals.queries import queries
from oasis_runtime.contract import Metric
from tests.unit.chart.test_queries import texts
from tests.unit.operator.make import deployment

REVISION = "0123abcd"
ASKED = queries(deployment(), REVISION)
TEXT = [*texts(asdict(ASKED))]


def test_every_query_is_about_this_deployments_engines_only() -> None:
    for query in TEXT:
        for selector in re.findall(r"\{(namespace.*?)\}[\[)]", query):
            assert selector.startswith('namespace="team",pod=~"chat-')


def test_the_pod_pattern_takes_every_engine_of_the_revision_and_no_stranger() -> None:
    found = re.search(r'pod=~"(.*?)"', ASKED.numa_by_pod)
    assert found is not None
    pattern = re.compile(found.group(1))
    assert pattern.fullmatch(f"chat-{REVISION}-decode-5d9f-x2x")
    assert pattern.fullmatch(f"chat-{REVISION}-prefill-5d9f-x2x")
    assert not pattern.fullmatch(f"chat-{REVISION}-router-5d9f-x2x")
    assert not pattern.fullmatch(f"chat-two-{REVISION}-decode-5d9f-x2x")
    assert not pattern.fullmatch("chat-89abcdef-decode-5d9f-x2x")


def test_every_metric_is_one_that_the_engine_publishes() -> None:
    known = {str(metric) for metric in Metric}
    for query in TEXT:
        for name in re.findall(r"oasis_\w+", query):
            assert name in known or name.rpartition("_")[0] in known
