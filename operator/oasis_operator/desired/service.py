"""Services: a headless one per engine role, and the endpoint in front of the router."""

from __future__ import annotations

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.desired.metadata import (
    REVISION_LABEL,
    Component,
    Manifest,
    component_name,
    manifest,
    selector,
)
from oasis_runtime.contract import HTTP_PORT, ROUTER_PORT


def engine_service(od: OasisDeployment, component: Component) -> Manifest:
    """Headless: names the ready pods of a role, for those who want a pod and not the router."""
    return manifest(od, "v1", "Service", component_name(od, component), component) | {
        "spec": {
            "clusterIP": "None",
            "selector": selector(od, component),
            "ports": [_port(HTTP_PORT)],
        }
    }


def router_service(od: OasisDeployment, revision: str) -> Manifest:
    """The endpoint that clients use: the routers of one revision. It is the switch of an update."""
    name = component_name(od, Component.ROUTER)
    return manifest(od, "v1", "Service", name, Component.ROUTER) | {
        "spec": {
            "selector": selector(od, Component.ROUTER) | {REVISION_LABEL: revision},
            "ports": [_port(ROUTER_PORT)],
        }
    }


def endpoint(od: OasisDeployment) -> str:
    """Base URL of the OpenAI API inside the cluster."""
    return f"http://{component_name(od, Component.ROUTER)}.{od.namespace}.svc:{ROUTER_PORT}/v1"


def models_url(od: OasisDeployment, component: Component) -> str:
    """Where an engine answers only to a client with the right key."""
    return f"http://{component_name(od, component)}.{od.namespace}.svc:{HTTP_PORT}/v1/models"


def _port(number: int) -> Manifest:
    return {"name": "http", "port": number, "targetPort": "http", "protocol": "TCP"}
