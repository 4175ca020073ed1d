"""The thread that owns an agent and its sockets, and the mailbox through which it is told."""

from __future__ import annotations

import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import zmq

from oasis_runtime.pd.types import TransferError

_log = logging.getLogger(__name__)

IDLE_SECONDS = 0.05
"""Between two looks at leases and keep-alives while nothing is under way."""
_SPIN_SECONDS = 50e-6
_SLOW_SECONDS = 1e-3
_SPIN_FOR_SECONDS = 0.02


class Session(ABC):
    """What lives on a transfer thread: made, stepped and shut there, touched nowhere else."""

    @abstractmethod
    def step(self) -> bool:
        """Does what there is to do without waiting; True when it did anything."""

    @abstractmethod
    def under_way(self) -> bool:
        """Whether a transfer waits for progress, which only stepping makes."""

    @abstractmethod
    def shut(self) -> None:
        """Lets go of agents and sockets."""


S = TypeVar("S", bound=Session)


class TransferThread(Generic[S]):
    """Runs a session until closed; other threads talk to it only through ``post``."""

    def __init__(self, name: str, make: Callable[[zmq.Poller], S]) -> None:
        self._make = make
        self._poller = zmq.Poller()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._mailbox: deque[Callable[[S], None]] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._ready = threading.Event()
        self._stop = False
        self._failure: Exception | None = None

    def start(self) -> None:
        """Starts the thread and waits for its session. Raises what making it raised."""
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Stops the thread and waits for its end. May be called twice."""
        self._stop = True
        if self._wake < 0:
            return
        os.eventfd_write(self._wake, 1)
        if self._thread.is_alive():
            self._thread.join()
        os.close(self._wake)
        self._wake = -1

    def check(self) -> None:
        """Raises TransferError when the session has died."""
        if self._failure is not None:
            raise TransferError(f"{self._thread.name} has stopped: {self._failure}") from (
                self._failure
            )

    def post(self, command: Callable[[S], None], wake: bool = True) -> None:
        """Has the thread call ``command`` with its session, in order; without ``wake``, when it
        next looks, within :data:`IDLE_SECONDS`."""
        self._mailbox.append(command)
        if wake:
            self.wake()

    def wake(self) -> None:
        """Has the thread look into its mailbox now."""
        if self._wake >= 0:
            os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        try:
            session = self._make(self._poller)
        except Exception as error:  # noqa: BLE001 - raised again by start(), in the caller
            self._failure = error
            self._ready.set()
            return
        self._poller.register(self._wake, zmq.POLLIN)
        self._ready.set()
        try:
            self._loop(session)
        except Exception as error:  # noqa: BLE001 - raised again by check(), in the caller
            self._failure = error
            _log.exception("%s has stopped", self._thread.name)
        finally:
            session.shut()

    def _loop(self, session: S) -> None:
        quiet_since = time.monotonic()
        while not self._stop:
            worked = bool(self._mailbox)
            while self._mailbox:
                self._mailbox.popleft()(session)
            worked |= session.step()
            now = time.monotonic()
            if worked:
                quiet_since = now
                continue
            if self._mailbox:
                continue
            if not session.under_way():
                self._poll(IDLE_SECONDS)
            elif not self._poll(0):
                # NIXL has no file descriptor to wait on. Spin a little, then yield the core:
                # a frozen peer keeps a transfer under way until its deadline.
                spinning = now - quiet_since < _SPIN_FOR_SECONDS
                time.sleep(_SPIN_SECONDS if spinning else _SLOW_SECONDS)

    def _poll(self, seconds: float) -> bool:
        events = self._poller.poll(round(seconds * 1000))
        for source, _ in events:
            if source == self._wake:
                os.eventfd_read(self._wake)
        return bool(events)
