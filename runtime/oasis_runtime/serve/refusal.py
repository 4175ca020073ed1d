"""How the engine says no: sentences, an exit status, and the pod's termination message."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

EX_CONFIG = 78
"""Exit status of every refusal (``EX_CONFIG`` of sysexits.h): restarting will not help."""

TERMINATION_LOG = Path("/dev/termination-log")
"""Kubernetes shows this file in ``status.containerStatuses[].state.terminated.message``."""

TERMINATION_LOG_BYTES = 4096
"""The kubelet keeps no more than this of one container's message."""


class RefusalError(Exception):
    """The engine cannot start like this; each sentence names one problem and its remedy."""

    def __init__(self, sentences: Sequence[str]) -> None:
        super().__init__("\n".join(sentences))
        self.sentences = tuple(sentences)


def report(
    refusal: RefusalError,
    stream: TextIO | None = None,
    termination_log: Path = TERMINATION_LOG,
) -> int:
    """Print the sentences, one a line, and leave them in the pod's status.

    The termination log is written only where it exists, which is inside a pod.
    Returns the exit status.
    """
    stream = stream if stream is not None else sys.stderr
    text = "".join(f"oasis_runtime: {sentence}\n" for sentence in refusal.sentences)
    stream.write(text)
    stream.flush()
    if termination_log.exists():
        try:
            termination_log.write_bytes(text.encode()[:TERMINATION_LOG_BYTES])
        except OSError as error:
            stream.write(f"oasis_runtime: cannot write {termination_log}: {error}\n")
    return EX_CONFIG
