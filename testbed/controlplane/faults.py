"""A proxy in front of an API server that does to requests what somebody asks for.

It listens without TLS on loopback and passes a client's own authorization on, so a client needs
nothing but another address in its kubeconfig.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from testbed import wait
from testbed.controlplane.bed import ControlPlane

HOLD_SECONDS = 60.0
"""A request that nobody lets go is passed on after it."""
_PASSED_ON = ("Accept", "Accept-Encoding", "Authorization", "Content-Type", "User-Agent")
_PASSED_BACK = ("Content-Encoding", "Content-Type", "Retry-After", "Warning")


@dataclass(frozen=True)
class Call:
    """A request as it arrives; ``path`` is without the query."""

    method: str
    path: str
    query: str

    @property
    def watches(self) -> bool:
        return urllib.parse.parse_qs(self.query).get("watch", [""])[0] in ("true", "1")

    @property
    def reads(self) -> bool:
        return self.method == "GET"

    @property
    def writes(self) -> bool:
        return not self.reads

    @property
    def elects(self) -> bool:
        return "/leases" in self.path


@dataclass(frozen=True)
class Refusal:
    """An answer in place of the API server's."""

    status: int
    reason: str
    message: str
    retry_after: int | None = None

    @property
    def body(self) -> bytes:
        return json.dumps(
            {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "code": self.status,
                "reason": self.reason,
                "message": self.message,
            }
        ).encode()


@dataclass(frozen=True)
class Cut:
    """The connection is closed without an answer."""


@dataclass(frozen=True)
class Held:
    """The request is passed on when ``until`` is set."""

    until: threading.Event


Fault = Refusal | Cut | Held
Rule = Callable[[Call], Fault | None]

TOO_MANY = Refusal(429, "TooManyRequests", "too many requests, please try again later", 1)
CONFLICT = Refusal(
    409,
    "Conflict",
    "Operation cannot be fulfilled: the object has been modified; please apply your changes to "
    "the latest version and try again",
)
GONE = Refusal(410, "Expired", "too old resource version: 1 (2)")


def no_fault(_: Call) -> None:
    return None


class Breaking:
    """A rule: the fault of every request that ``when`` holds for, and how many these were."""

    def __init__(self, fault: Fault, when: Callable[[Call], bool] = lambda _: True) -> None:
        self._fault = fault
        self._when = when
        self._lock = threading.Lock()
        self.count = 0

    def __call__(self, call: Call) -> Fault | None:
        with self._lock:
            if not self._when(call):
                return None
            self.count += 1
            return self._fault


class FaultProxy:
    """One proxy. Nothing goes wrong but :meth:`under` a rule, which says for each request what
    does."""

    def __init__(self, plane: ControlPlane) -> None:
        self._server = _Server(plane)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextlib.contextmanager
    def under(self, rule: Rule) -> Iterator[None]:
        """``rule`` holds within the context; many threads call it."""
        self._server.rule = rule
        try:
            yield
        finally:
            self._server.rule = no_fault

    def watches(self) -> int:
        """How many are open."""
        return self._server.open_watches()

    def expire_watches(self) -> None:
        """Every open watch ends as one does whose version the server no longer has."""
        event = json.dumps({"type": "ERROR", "object": json.loads(GONE.body)}).encode() + b"\n"
        self._server.end_watches(lambda watch: watch.end(event))

    def cut_watches(self) -> None:
        """Every open watch ends without a word."""
        self._server.end_watches(lambda watch: watch.end(properly=False))

    def close(self) -> None:
        """Ends it with all connections."""
        self._server.shutdown()
        self._server.server_close()
        self.cut_watches()


class _Watch:
    """One open stream: events come from the API server, the last one perhaps from elsewhere."""

    def __init__(self, handler: _Handler, upstream: http.client.HTTPConnection) -> None:
        self._handler = handler
        self._upstream = upstream
        self._lock = threading.Lock()
        self._ended = False

    def send(self, line: bytes) -> bool:
        """False once the stream has ended."""
        with self._lock:
            if not self._ended and line:
                self._handler.send_chunk(line)
            return not self._ended

    def end(self, *events: bytes, properly: bool = True) -> None:
        """``properly``: with the mark of its end, as the API server ends a stream."""
        with self._lock, contextlib.suppress(OSError):
            if self._ended:
                return
            self._ended = True
            for event in events:
                self._handler.send_chunk(event)
            if properly:
                self._handler.send_chunk(b"")
            # Wakes the thread that waits for the next event.
            if self._upstream.sock is not None:
                self._upstream.sock.shutdown(socket.SHUT_RDWR)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.rule: Rule = no_fault
        self._host = urllib.parse.urlsplit(plane.server).netloc
        self._tls = wait.trusting(plane.layout.pki / "ca.crt")
        self._watches: set[_Watch] = set()
        self._lock = threading.Lock()

    def upstream(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._host, context=self._tls)

    @contextlib.contextmanager
    def listed(self, watch: _Watch) -> Iterator[None]:
        with self._lock:
            self._watches.add(watch)
        try:
            yield
        finally:
            with self._lock:
                self._watches.discard(watch)

    def open_watches(self) -> int:
        with self._lock:
            return len(self._watches)

    def end_watches(self, end: Callable[[_Watch], None]) -> None:
        with self._lock:
            watches = list(self._watches)
        for watch in watches:
            end(watch)


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client, and one to the API server for it."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self._upstream = self.server.upstream()

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            super().finish()
        self._upstream.close()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def send_chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path, _, query = self.path.partition("?")
        call = Call(self.command, path, query)
        fault = self.server.rule(call)
        try:
            match fault:
                case Refusal():
                    self._refuse(fault)
                case Cut():
                    self.close_connection = True
                case _:
                    if isinstance(fault, Held):
                        fault.until.wait(HOLD_SECONDS)
                    self._pass_on(call, body)
        except (OSError, http.client.HTTPException):
            # Whoever ended it, the client learns of it by the end of its connection.
            self.close_connection = True

    def _refuse(self, refusal: Refusal) -> None:
        headers = {"Content-Type": "application/json"}
        if refusal.retry_after is not None:
            headers["Retry-After"] = str(refusal.retry_after)
        self._answer(refusal.status, headers, refusal.body)

    def _pass_on(self, call: Call, body: bytes) -> None:
        headers = {name: self.headers[name] for name in _PASSED_ON if name in self.headers}
        self._upstream.request(call.method, self.path, body or None, headers)
        answer = self._upstream.getresponse()
        back = {name: answer.headers[name] for name in _PASSED_BACK if name in answer.headers}
        if call.watches and answer.status == http.client.OK:
            self._stream(answer, back)
        else:
            self._answer(answer.status, back, answer.read())

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self._begin(status, headers | {"Content-Length": str(len(body))})
        self.wfile.write(body)

    def _stream(self, answer: http.client.HTTPResponse, headers: dict[str, str]) -> None:
        watch = _Watch(self, self._upstream)
        self.close_connection = True
        self._begin(
            answer.status, headers | {"Transfer-Encoding": "chunked", "Connection": "close"}
        )
        with self.server.listed(watch):
            while line := answer.readline():
                if not watch.send(line):
                    return
            watch.end()

    def _begin(self, status: int, headers: dict[str, str]) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
