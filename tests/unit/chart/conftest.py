"""A Prometheus that parses queries; it scrapes nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.monitoring.local import serving
from tests.unit.chart.parsed import Parser


@pytest.fixture(scope="session")
def parser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parser]:
    with serving(tmp_path_factory.mktemp("prometheus"), "{}\n") as url:
        yield Parser(url)
