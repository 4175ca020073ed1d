"""Addresses of the control channel."""

from __future__ import annotations


def endpoint(host: str, port: int | None) -> str:
    """ZeroMQ endpoint of a host (name, IPv4 or IPv6) and port; None leaves the port out."""
    shown = f"[{host}]" if ":" in host else host
    return f"tcp://{shown}" if port is None else f"tcp://{shown}:{port}"
