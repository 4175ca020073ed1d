"""What a policy sees of the fleet, as metrics would show it: a scrape every 15 s."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PodView:
    """A ready pod; rates and shares over the window that the view was asked for."""

    ready_seconds: float
    running: int
    waiting: int
    busy: float
    prompt_tokens: float
    answer_tokens: float
    network: float
    """Bytes a second sent or received."""
    fetched: float
    """Bytes a second from host memory."""


@dataclass(frozen=True)
class RoleView:
    """One role. ``replicas`` counts pods that are pending or starting too."""

    replicas: int
    pods: tuple[PodView, ...]
    placed: int
    """Pods that have a GPU: ready, or starting."""
    pending_seconds: float
    wait: float | None
    """90 % of the requests that started in the window had waited less, seconds."""
    started: float
    """Requests a second."""
    latency: float | None
    """90 % of the times to first token, or of the times of a token."""
    observed: float
    """Observations a second."""


@dataclass(frozen=True)
class FleetView:
    prefill: RoleView
    decode: RoleView
    resident: float
    """Selected pages a second that were in the fast tier."""
    selected: float
    exports: int
    export_seconds: float


@dataclass(frozen=True)
class Replicas:
    prefill: int
    decode: int
