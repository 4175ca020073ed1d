"""A reader's control connection to one owner."""

from __future__ import annotations

import zmq

from oasis_runtime.pd import protocol
from oasis_runtime.pd.endpoint import endpoint
from oasis_runtime.pd.types import Peer, TransferError

_GOODBYE_MS = 200
"""How long a last release may take to leave after the connection was closed here."""


class Channel:
    """Messages to and from an owner, never waiting.

    Raises TransferError when ``peer`` is not an address.
    """

    def __init__(
        self, peer: Peer, context: zmq.Context[zmq.Socket[bytes]], poller: zmq.Poller
    ) -> None:
        self._poller = poller
        self._socket = context.socket(zmq.DEALER)
        self._socket.ipv6 = ":" in peer.host
        self._socket.maxmsgsize = protocol.MAX_MESSAGE_BYTES
        try:
            self._socket.connect(endpoint(peer.host, peer.port))
        except zmq.ZMQError as error:
            self._socket.close(linger=0)
            raise TransferError(f"{peer} is not an address: {error.strerror}") from error
        self._monitor = self._socket.get_monitor_socket(zmq.Event.DISCONNECTED)
        for socket in (self._socket, self._monitor):
            poller.register(socket, zmq.POLLIN)

    def send(self, message: protocol.FromReader) -> bool:
        """False when the owner has not taken so many messages that no more fit."""
        try:
            self._socket.send(protocol.encode(message), zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def receive(self) -> protocol.FromOwner | None:
        """The next message, if there is one. Raises ProtocolError when it is none of ours."""
        try:
            return protocol.decode_from_owner(self._socket.recv(zmq.NOBLOCK))
        except zmq.Again:
            return None

    def broken(self) -> bool:
        """Whether the connection was lost after it had been made."""
        return bool(self._monitor.poll(0))

    def close(self) -> None:
        for socket in (self._socket, self._monitor):
            self._poller.unregister(socket)
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=_GOODBYE_MS)
