"""A real API server for the tests here, with fake nodes: real objects, no containers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed import processes
from testbed.controlplane import bed

FAKE_NODES = 3


@pytest.fixture(scope="session")
def control_plane() -> Iterator[bed.ControlPlane]:
    """etcd, API server, controller manager, scheduler and KWOK with Ready nodes ``fake-0`` to ``-2``.

    Pods become Running and Ready there without running anything; ``testbed/README.md`` lists the
    annotations that delay or fail them. Ends with the session, also when pytest is killed: the
    next bring-up sweeps beds whose owner is gone.
    """
    owner = processes.this_process("pytest")
    running = bed.up(bed.named_folder(f"pytest-{owner.pid}"), kwok=True, owner=owner)
    try:
        running.add_fake_nodes(FAKE_NODES)
        yield running
    finally:
        running.stop()
