"""Waiting for a condition, with a deadline and an early end when it cannot come true any more."""

from __future__ import annotations

import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from testbed.problem import Problem

INTERVAL_SECONDS = 0.1


def until(
    condition: Callable[[], bool],
    what: str,
    timeout: float,
    alive: Callable[[], None] = lambda: None,
    every: float = INTERVAL_SECONDS,
) -> None:
    """Poll ``condition`` every ``every`` seconds until it holds.

    ``alive`` is called before each poll and raises when waiting has become pointless. Raises
    Problem that names ``what`` after ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    while True:
        alive()
        if condition():
            return
        if time.monotonic() > deadline:
            raise Problem(f"{what} did not happen within {timeout:.0f} s")
        time.sleep(every)


def trusting(authority: Path, client: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    """TLS that trusts one authority; ``client`` is a certificate and its key to show."""
    context = ssl.create_default_context(cafile=str(authority))
    if client is not None:
        context.load_cert_chain(*map(str, client))
    return context


def unverified() -> ssl.SSLContext:
    """TLS for a loopback health check of a program that signs its own certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def listens(port: int) -> bool:
    """Whether somebody accepts connections to a loopback port."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def answers(url: str, tls: ssl.SSLContext | None = None) -> bool:
    """Whether ``GET url`` gives status 200."""
    try:
        with urllib.request.urlopen(url, timeout=2, context=tls) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
