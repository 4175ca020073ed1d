"""The little of NIXL that the transfer uses: one registered buffer, single-descriptor WRITEs.

An agent is owned by one thread. It has no progress thread of its own: NIXL's spins (40-98 % of
a core each) and the Python API cannot slow it down. Polling from the owning thread instead costs
nothing when idle and moves 40 MB in 20 ms over loopback TCP, as fast as the spinning thread.
"""

from __future__ import annotations

import os
import time
from collections.abc import MutableMapping
from importlib import metadata
from typing import Any

from oasis_runtime.pd.landing import Region
from oasis_runtime.pd.memory import RegisteredMemory
from oasis_runtime.pd.types import TransferError

NIXL_VERSION = "1.5.1"

UCX_DEFAULTS = {
    # No shared memory: it needs a PID namespace shared by both pods, and a WRITE into a frozen
    # process would look done. TCP must stay in the list for UCX to report dead peers.
    "UCX_TLS": "^sm",
    # A peer behind a dead link is noticed in seconds, not minutes.
    "UCX_TCP_USER_TIMEOUT": "5s",
    "UCX_KEEPALIVE_INTERVAL": "2s",
    # Four times the loopback bandwidth of the default segments.
    "UCX_TCP_TX_SEG_SIZE": "256k",
    "UCX_TCP_RX_SEG_SIZE": "256k",
    "NIXL_LOG_LEVEL": "WARN",
}
"""Set unless the environment says otherwise. ``UCX_NET_DEVICES`` is the caller's to choose."""


class PeerGoneError(TransferError):
    """The peer's agent cannot be reached any more."""


def set_ucx_defaults(environ: MutableMapping[str, str]) -> None:
    """Fills in :data:`UCX_DEFAULTS`; must run before NIXL is imported for the first time."""
    for name, value in UCX_DEFAULTS.items():
        environ.setdefault(name, value)


def _load() -> Any:
    set_ucx_defaults(os.environ)
    try:
        found = metadata.version("nixl-cu12")
    except metadata.PackageNotFoundError:
        found = "none"
    if found != NIXL_VERSION:
        raise TransferError(
            f"the KV transfer needs nixl-cu12 {NIXL_VERSION}, found {found}; "
            f"run: pip install nixl-cu12=={NIXL_VERSION}"
        )
    from nixl_cu12 import _api

    return _api


class Agent:
    """A NIXL agent with ``memory`` registered. Raises TransferError when it cannot start."""

    def __init__(self, name: str, memory: RegisteredMemory) -> None:
        api = _load()
        self.name = name
        self._memory = memory
        try:
            config = api.nixl_agent_config(enable_prog_thread=False, backends=["UCX"])
            self._nixl = api.nixl_agent(name, config)
            self._nixl.register_memory([(memory.address, memory.nbytes, 0, "")], "DRAM")
        except _nixl_errors(api) as error:
            raise TransferError(f"NIXL agent {name} cannot start: {error}") from error
        self._errors = _nixl_errors(api)
        self.metadata: bytes = self._nixl.get_agent_metadata()

    def add_peer(self, described: bytes) -> str:
        """Loads a peer's metadata; its agent name. Raises TransferError on anything else."""
        try:
            name: str | bytes = self._nixl.add_remote_agent(described)
        except self._errors as error:
            raise TransferError(f"not the metadata of a NIXL agent: {error}") from error
        return name.decode() if isinstance(name, bytes) else name

    def forget_peer(self, name: str) -> None:
        """Disconnects from a peer. Its WRITEs must have been abandoned before."""
        try:
            self._nixl.remove_remote_agent(name)
        except self._errors as error:
            raise TransferError(f"NIXL does not let go of peer {name}: {error}") from error

    def write(self, region: Region, peer: str, address: int) -> Write:
        """Posts a WRITE of ``region`` to ``address`` of ``peer``.

        Raises PeerGoneError when the peer is unreachable, TransferError when ``address`` is not
        in memory that the peer registered.
        """
        source = [(self._memory.address + region.offset, region.nbytes, 0)]
        target = [(address, region.nbytes, 0)]
        try:
            handle = self._nixl.initialize_xfer(
                "WRITE",
                self._nixl.get_xfer_descs(source, "DRAM"),
                self._nixl.get_xfer_descs(target, "DRAM"),
                peer,
            )
        except self._errors as error:
            raise TransferError(
                f"{region.nbytes} bytes at {address:#x} are not registered by {peer}: {error}"
            ) from error
        return Write(self._nixl, self._errors, handle, peer)

    def progress(self) -> None:
        """Lets NIXL work on what arrives; without it no WRITE of a peer lands."""
        try:
            self._nixl.get_new_notifs()
        except self._errors as error:
            raise PeerGoneError(f"NIXL cannot make progress: {error}") from error

    def close(self) -> None:
        """Destroys the agent: no peer can reach its memory any more, not even late."""
        del self._nixl


def _nixl_errors(api: Any) -> tuple[type[Exception], ...]:
    bind = api.nixlBind
    return (
        bind.nixlBackendError,
        bind.nixlCancelledError,
        bind.nixlInvalidParamError,
        bind.nixlMismatchError,
        bind.nixlNotAllowedError,
        bind.nixlNotFoundError,
        bind.nixlNotPostedError,
        bind.nixlNotSupportedError,
        bind.nixlRemoteDisconnectError,
        bind.nixlRepostActiveError,
        bind.nixlUnknownError,
    )


class Write:
    """A WRITE under way."""

    def __init__(
        self, nixl: Any, errors: tuple[type[Exception], ...], handle: Any, peer: str
    ) -> None:
        self._nixl = nixl
        self._errors = errors
        self._handle = handle
        self._peer = peer
        self._posted = False
        self.posted_at = time.monotonic()

    def done(self) -> bool:
        """Posts the WRITE on the first call; True once the peer's side has acknowledged all of
        it, after which the handle is gone. Each call also makes progress. Raises PeerGoneError.
        """
        try:
            if self._posted:
                state = self._nixl.check_xfer_state(self._handle)
            else:
                self._posted = True
                state = self._nixl.transfer(self._handle)
        except self._errors as error:
            raise PeerGoneError(f"the WRITE to {self._peer} failed: {error}") from error
        if state == "PROC":
            return False
        if state != "DONE":
            raise PeerGoneError(f"the WRITE to {self._peer} ended in state {state}")
        self._handle.release()
        return True

    def abandon(self) -> bool:
        """Lets go of an unfinished WRITE; False when NIXL cannot cancel it yet."""
        try:
            self._handle.release()
        except self._errors:
            return False
        return True
