"""The event loop of vLLM's server, which knows whether anybody has asked for the end.

When its engine dies vLLM ends the HTTP server and returns as after SIGTERM. Kubernetes would show a
container that has completed its work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVarTuple, Unpack

import uvloop

Arguments = TypeVarTuple("Arguments")


class ServerLoop(uvloop.Loop):
    """Remembers the first signal that somebody on it handles."""

    asked = False

    def add_signal_handler(
        self,
        sig: int,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
    ) -> None:
        def handle() -> None:
            self.asked = True
            callback(*args)

        super().add_signal_handler(sig, handle)
