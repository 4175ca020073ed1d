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
    """Headless: names the pods of a role, for those who want a pod and not the router.

    The ready ones, but of prefill all: a decode pod that ends asks them for what may still come,
    and they may be ending too.
    """
    everyone = {"publishNotReadyAddresses": True} if component is Component.PREFILL else {}
    return manifest(od, "v1", "Service", component_name(od, component), component) | {
        "spec": {
            "clusterIP": "None",
            **everyone,
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
    return f"http://{service_host(od, Component.ROUTER)}:{ROUTER_PORT}/v1"


def service_host(od: OasisDeployment, component: Component) -> str:
    """Name of a component's Service inside the cluster."""
    return f"{component_name(od, component)}.{od.namespace}.svc"


def models_url(od: OasisDeployment, component: Component) -> str:
    """Where an engine answers only to a client with the right key."""
    return f"http://{service_host(od, component)}:{HTTP_PORT}/v1/models"


def _port(number: int) -> Manifest:
    return {"name": "http", "port": number, "targetPort": "http", "protocol": "TCP"}
