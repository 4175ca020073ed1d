"""``python -m oasis_runtime.serve.drain``: waits until an engine has nothing left to do.

A pod's ``preStop`` runs it, and the kubelet sends SIGTERM when it returns. From SIGTERM on vLLM
refuses what is new, so it must not come as long as a request may be on its way. Routers leave out a
pod that is ending, but only for requests that begin; one whose prompt is being prefilled has its
decode engine chosen already, and comes when the prefill is done.

Of an engine on several nodes every pod waits so: the one that answers knows what there is to do,
and it can do nothing without the others. Knows the engine by its metrics alone. Import-light: it
starts on a machine that is busy.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from oasis_runtime.contract import (
    DRAIN_QUIET_SECONDS,
    DRAIN_SETTLE_SECONDS,
    NODE_LEADER_VARIABLE,
    NODE_RANK_VARIABLE,
    Metric,
    Role,
)

RUNNING = ("vllm:num_requests_running", "vllm:num_requests_waiting")
ANSWERED = "vllm:request_success_total"
LOCAL = "127.0.0.1"
POLL_SECONDS = 0.5
TIMEOUT_SECONDS = 2.0
DEAD_SECONDS = 60.0
"""An engine that has not answered for so long hangs: nobody gets anything from it any more. The
kubelet runs ``preStop`` also before it restarts one that fails its liveness probe."""

Samples = Mapping[str, float]
"""Metrics by name, summed over their labels."""


@dataclass(frozen=True)
class Seen:
    """What one look at the engine and at its prefill engines has shown."""

    engine: Samples | None
    """``None``: no answer, as of one that is very busy."""
    prefills: Sequence[Samples | None] = ()
    listening: bool = True
    """False of one that has not begun to serve, or does not any more."""

    @property
    def idle(self) -> bool:
        """Nobody waits for this engine, clients or readers."""
        return self.engine is not None and _work(self.engine) == 0

    @property
    def none_prefills(self) -> bool:
        """No prompt is being computed that this engine might be chosen for."""
        return all(samples is not None and _work(samples) == 0 for samples in self.prefills)


@dataclass
class Drain:
    """Judges, look by look, whether the engine may end.

    Attributes:
        role: of the engine.
        begun: when the pod began to end.
        limit: seconds after which it ends whatever it is doing.
    """

    role: Role
    begun: float
    limit: float
    _answered: float | None = field(default=None, init=False)
    _quiet_since: float | None = field(default=None, init=False)
    _free_since: float | None = field(default=None, init=False)
    _silent_since: float | None = field(default=None, init=False)

    def may_end(self, now: float, seen: Seen) -> bool:
        """Whether nothing more is to be done."""
        if now - self.begun >= self.limit or not seen.listening:
            return True
        self._note(now, seen)
        if self._silent_since is not None and now - self._silent_since >= DEAD_SECONDS:
            return True
        if now - self.begun < DRAIN_SETTLE_SECONDS or not seen.idle:
            return False
        return self.role is not Role.DECODE or self._nothing_comes(now)

    def _note(self, now: float, seen: Seen) -> None:
        answered = None if seen.engine is None else seen.engine.get(ANSWERED, 0.0)
        if self._quiet_since is None or not seen.idle or answered != self._answered:
            self._quiet_since = now
        self._answered = answered
        if seen.engine is not None:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = now
        # Before the routers know that this pod is ending, prefills may still begin for it.
        settled = now - self.begun >= DRAIN_SETTLE_SECONDS
        if not settled or not seen.none_prefills:
            self._free_since = None
        elif self._free_since is None:
            self._free_since = now

    def _nothing_comes(self, now: float) -> bool:
        """A prefill that is done is on its way for a moment; one under way, until it is done."""
        free = self._free_since is not None and now - self._free_since >= POLL_SECONDS
        quiet = self._quiet_since is not None and now - self._quiet_since >= DRAIN_QUIET_SECONDS
        return free or quiet


def drain(
    watch: Drain,
    look: Callable[[], Seen],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Returns when the engine may end."""
    while not watch.may_end(clock(), look()):
        sleep(POLL_SECONDS)


def _work(samples: Samples) -> float:
    return sum(samples.get(name, 0.0) for name in (*RUNNING, Metric.EXPORTS))


def parse(text: str, names: Iterable[str]) -> Samples:
    """The named metrics of an exposition; those that it has not are missing."""
    wanted, found = frozenset(names), dict[str, float]()
    for line in text.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in wanted:
            found[name] = found.get(name, 0.0) + float(line.rpartition(" ")[2])
    return found


def read(host: str, port: int) -> Samples | None:
    """An engine's metrics; ``None`` without an answer.

    Raises:
        ConnectionRefusedError: nobody listens there.
    """
    where = f"[{host}]" if ":" in host else host
    try:
        with urllib.request.urlopen(
            f"http://{where}:{port}/metrics", timeout=TIMEOUT_SECONDS
        ) as answer:
            return parse(answer.read().decode(), (*RUNNING, ANSWERED, Metric.EXPORTS))
    except urllib.error.URLError as error:
        if isinstance(error.reason, ConnectionRefusedError):
            raise error.reason from error
        return None
    except (OSError, ValueError):
        return None


def addresses(name: str, port: int) -> list[str]:
    """All addresses of a host name; none if there is no such name.

    Raises:
        OSError: nobody can say.
    """
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in (socket.EAI_NONAME, socket.EAI_NODATA):
            return []
        raise
    return sorted({str(item[4][0]) for item in found})


def serving_host(environment: Mapping[str, str]) -> str:
    """Where the pod's engine answers: here, or on the node with rank 0."""
    alone_or_first = environment.get(NODE_RANK_VARIABLE, "0") == "0"
    return LOCAL if alone_or_first else environment.get(NODE_LEADER_VARIABLE, LOCAL)


def look(port: int, prefills: str | None, host: str = LOCAL) -> Seen:
    """At the engine that this pod is of, and at the prefill engines behind a host name."""
    try:
        engine = None if _unknown(host, port) else read(host, port)
    except ConnectionRefusedError:
        return Seen(None, listening=False)
    return Seen(engine, () if prefills is None else _prefills(prefills, port))


def _unknown(host: str, port: int) -> bool:
    """Whether nobody can say where it is. Raises ConnectionRefusedError: there is no such host."""
    try:
        if addresses(host, port):
            return False
    except OSError:
        return True
    raise ConnectionRefusedError(host)


def _prefills(name: str, port: int) -> list[Samples | None]:
    try:
        found = addresses(name, port)
    except OSError:
        return [None]
    samples: list[Samples | None] = []
    for address in found:
        # One that does not listen computes nothing.
        with contextlib.suppress(ConnectionRefusedError):
            samples.append(read(address, port))
    return samples


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line; the operator writes it."""
    parser = argparse.ArgumentParser(prog="python -m oasis_runtime.serve.drain")
    parser.add_argument("--role", type=Role, choices=list(Role), required=True)
    parser.add_argument("--port", type=int, required=True, help="of the engines' HTTP servers")
    parser.add_argument("--limit", type=float, required=True, help="seconds")
    parser.add_argument("--prefills", metavar="HOST", help="name of the prefill engines")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> None:
    begun, told, host = time.monotonic(), parsed(arguments), serving_host(os.environ)
    drain(Drain(told.role, begun, told.limit), lambda: look(told.port, told.prefills, host))


if __name__ == "__main__":
    main(sys.argv[1:])
