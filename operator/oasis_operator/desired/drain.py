"""How pods end: what they wait for, and for how long at most."""

from __future__ import annotations

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.desired.metadata import Component, Manifest
from oasis_operator.desired.roles import RolePlan
from oasis_operator.desired.service import service_host
from oasis_runtime.contract import (
    DRAIN_MARGIN_SECONDS,
    DRAIN_SETTLE_SECONDS,
    HTTP_PORT,
    Role,
)


def drain_command(od: OasisDeployment, role: RolePlan) -> list[str]:
    """An engine's ``preStop``: it returns when no request and no reader is left."""
    command = [
        *("python", "-m", "oasis_runtime.serve.drain"),
        *("--role", role.engine.value),
        *("--port", str(HTTP_PORT)),
        *("--limit", str(od.spec.updates.drain_seconds)),
    ]
    if role.engine is Role.DECODE:
        command += ["--prefills", service_host(od, Component.PREFILL)]
    return command


def engine_grace_seconds(od: OasisDeployment) -> int:
    """Until an engine is killed: the drain, and a margin to exit."""
    return int(od.spec.updates.drain_seconds + DRAIN_MARGIN_SECONDS)


def router_pre_stop() -> Manifest:
    """Clients find the other routers meanwhile; from SIGTERM on a router listens no more."""
    return {"sleep": {"seconds": int(DRAIN_SETTLE_SECONDS)}}


def router_grace_seconds(od: OasisDeployment) -> int:
    """Until a router is killed, which finishes its streams before it exits."""
    return int(DRAIN_SETTLE_SECONDS + od.spec.updates.drain_seconds + DRAIN_MARGIN_SECONDS)
