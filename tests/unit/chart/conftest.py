"""A Prometheus that parses queries; it scrapes nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed import processes, programs, wait
from testbed.controlplane.bed import free_ports
from tests.unit.chart.parsed import Parser


@pytest.fixture(scope="session")
def parser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parser]:
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "config.yml").write_text("{}\n")
    (port,) = free_ports(1)
    started = processes.spawn(
        "prometheus",
        [
            programs.find(["prometheus"])["prometheus"],
            f"--config.file={folder / 'config.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        folder / "log",
    )
    try:
        url = f"http://127.0.0.1:{port}"
        wait.until(lambda: wait.answers(f"{url}/-/ready"), "Prometheus", 60)
        yield Parser(url)
    finally:
        processes.stop(started)
