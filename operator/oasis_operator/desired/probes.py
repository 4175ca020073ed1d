"""Probes. Five seconds to answer: on busy cores one second makes healthy pods fail."""

from __future__ import annotations

from oasis_operator.desired.metadata import Manifest

TIMEOUT_SECONDS = 5
STARTUP_PERIOD_SECONDS = 2


def http_probe(path: str, period: int, failures: int, port: str = "http") -> Manifest:
    return {
        "httpGet": {"path": path, "port": port},
        "periodSeconds": period,
        "timeoutSeconds": TIMEOUT_SECONDS,
        "failureThreshold": failures,
    }


def tcp_probe(period: int, failures: int, port: str = "http") -> Manifest:
    return {
        "tcpSocket": {"port": port},
        "periodSeconds": period,
        "timeoutSeconds": TIMEOUT_SECONDS,
        "failureThreshold": failures,
    }


def startup_probe(path: str, deadline_seconds: int) -> Manifest:
    """Gives the engine until the deadline to load its model."""
    return http_probe(
        path, STARTUP_PERIOD_SECONDS, max(1, -(-deadline_seconds // STARTUP_PERIOD_SECONDS))
    )
