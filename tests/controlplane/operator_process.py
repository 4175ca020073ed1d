"""The operator as a process of its own, with the rights that the chart gives it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from testbed import wait
from testbed.controlplane.bed import free_ports

ROOT = Path(__file__).parents[2]
NAMESPACE = "oasiskv-system"
READY_SECONDS = 60.0
IMAGES = {"OASIS_RUNTIME_IMAGE": "runtime:test", "OASIS_ROUTER_IMAGE": "router:test"}


@dataclass
class OperatorProcess:
    """One replica. ``lead_ready`` waits for its watches, ``standing_by`` only for its election."""

    name: str
    kubeconfig: Path
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.metrics_port, self.health_port = free_ports(2)
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "oasis_operator.main"],
                cwd=ROOT,
                stdout=out,
                stderr=out,
                env={
                    **os.environ,
                    **IMAGES,
                    "PYTHONPATH": "operator:runtime",
                    "KUBECONFIG": str(self.kubeconfig),
                    "POD_NAMESPACE": NAMESPACE,
                    "POD_NAME": self.name,
                    "OASIS_METRICS_PORT": str(self.metrics_port),
                    "OASIS_HEALTH_PORT": str(self.health_port),
                    "OASIS_RESYNC_SECONDS": "1",
                    **self.environment,
                },
            )

    def until_leading(self) -> OperatorProcess:
        wait.until(
            lambda: self.leads() and self.probe("readyz") == 200,
            f"{self.name} leading (log: {self.log})",
            READY_SECONDS,
            self.require_alive,
        )
        return self

    def until_standing_by(self) -> OperatorProcess:
        wait.until(
            lambda: self.probe("readyz") == 200,
            f"{self.name} up",
            READY_SECONDS,
            self.require_alive,
        )
        return self

    def leads(self) -> bool:
        return self.metric("oasis_operator_leader") == 1.0

    def probe(self, path: str) -> int:
        """HTTP status of a health endpoint; 0 without an answer."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.health_port}/{path}", timeout=5
            ) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def metric(self, name: str) -> float:
        """Sum over the labels of a metric; 0 for one without a sample, or without an answer."""
        samples = re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", self.exposition(), re.MULTILINE)
        return sum(map(float, samples))

    def exposition(self) -> str:
        """All metrics as text; empty without an answer."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5
            ) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def writes(self) -> float:
        return self.metric("oasis_operator_writes_total")

    def written(self) -> dict[str, float]:
        """Writes by the labels of their counter, kind and verb."""
        samples = re.findall(
            r"^oasis_operator_writes_total(\{.*\}) (\S+)$", self.exposition(), re.MULTILINE
        )
        return {labels: float(value) for labels, value in samples}

    def until_resynced(self, times: int = 2) -> None:
        """Waits until every OasisDeployment was looked at so often without a change."""
        start = self.metric("oasis_operator_resyncs_total")
        wait.until(
            lambda: (
                self.metric("oasis_operator_resyncs_total") >= start + times
                and self.metric("oasis_operator_queue_depth") == 0
            ),
            f"{times} resyncs",
            60,
            self.require_alive,
        )

    def failures(self) -> list[str]:
        """Reconciles that ended in what nobody had thought of, whatever became of them later."""
        found = re.findall(r"^.*reconcile failed.*$", self.log.read_text(), re.MULTILINE)
        return [str(line) for line in found]

    def stop(self) -> int:
        """Ends it as a kubelet would; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)

    def kill(self) -> None:
        """Ends it as a node does that loses power."""
        self.process.kill()
        self.process.wait(timeout=10)

    def until_ended(self, timeout: float) -> int:
        return self.process.wait(timeout=timeout)

    def require_alive(self) -> None:
        if self.process.poll() is not None:
            raise AssertionError(
                f"{self.name} ended with {self.process.returncode}:\n{self.log.read_text()[-3000:]}"
            )
