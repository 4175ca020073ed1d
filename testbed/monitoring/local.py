"""Start a Prometheus of one's own on this machine, outside of any cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed import processes, programs, wait
from testbed.controlplane.bed import free_ports

CONFIG = "config.yml"
READY_SECONDS = 60.0


@contextmanager
def serving(folder: Path, config: str) -> Iterator[str]:
    """URL of a Prometheus with this configuration; it ends with the context.

    ``folder`` gets its configuration, its log and its data, unless ``data`` is there already.
    Raises Problem when it is not ready in time.
    """
    (folder / CONFIG).write_text(config)
    (port,) = free_ports(1)
    started = processes.spawn(
        "prometheus",
        [
            programs.find(["prometheus"])["prometheus"],
            f"--config.file={folder / CONFIG}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        folder / "prometheus.log",
    )
    try:
        url = f"http://127.0.0.1:{port}"
        wait.until(lambda: wait.answers(f"{url}/-/ready"), "Prometheus", READY_SECONDS)
        yield url
    finally:
        processes.stop(started)
