"""A real one-node cluster. The tests here run inside it, and see Services and pods as a pod does:

python3 -m testbed up && python3 -m testbed images --load && python3 -m testbed prometheus
python3 -m testbed exec -- python -m pytest tests/e2e
"""

from __future__ import annotations

import os

import pytest

from testbed.node.cluster import Cluster
from testbed.problem import Problem


@pytest.fixture(scope="session")
def node() -> Cluster:
    """The cluster around the tests, with its one node Ready."""
    try:
        cluster = Cluster.of(os.environ)
        cluster.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=60s")
    except Problem as problem:
        pytest.fail(str(problem), pytrace=False)
    return cluster
