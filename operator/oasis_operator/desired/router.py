"""The router: vllm-router 0.1.17 with Kubernetes discovery of one revision's pods."""

from __future__ import annotations

from typing import Any

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.desired.drain import router_grace_seconds, router_pre_stop
from oasis_operator.desired.inputs import with_inputs
from oasis_operator.desired.metadata import (
    IMAGE,
    REVISION_LABEL,
    Component,
    Manifest,
    component_name,
    labels,
    manifest,
    selector,
    workload_name,
)
from oasis_operator.desired.model import secret_env
from oasis_operator.desired.pod import HOME, resources, scrape_annotations
from oasis_operator.desired.probes import TIMEOUT_SECONDS, http_probe, tcp_probe
from oasis_operator.desired.roles import is_disaggregated
from oasis_operator.desired.scheduling import scheduling
from oasis_operator.desired.security_context import (
    container_security,
    image_pull_secrets,
    pod_security,
)
from oasis_operator.desired.service import models_url
from oasis_runtime.contract import HTTP_PORT, ROUTER_METRICS_PORT, ROUTER_PORT

ROUTER_CONTAINER = "router"
HEALTH_CHECK_SECONDS = 2
"""In P/D mode the router does not retry and drops a dead worker only after three failed checks;
its default of 60 s between checks would fail requests for three minutes."""
WORKER_STARTUP_SECONDS = 5
"""Discovery handles one pod at a time and waits this long for it to answer; a pod that is Ready but
gone would otherwise keep all others out for 600 s. It is tried again after the others."""

# In P/D mode the router replaces the client's key with its own, so it must check the client's
# first. It can, against any URL that answers 200 only to the right key, but its command line
# has no flag for that.
_LAUNCH_WITH_KEY_CHECK = """\
import sys
from vllm_router.launch_router import launch_router, parse_router_args
args = parse_router_args(sys.argv[2:])
args.api_key_validation_urls = [sys.argv[1]]
launch_router(args)
"""
# With the check on, every path of the router wants the key, and an httpGet probe cannot read one.
_READY_WITH_KEY = f"""\
import os, urllib.request
key = os.environ['OPENAI_API_KEY']
url = 'http://127.0.0.1:{ROUTER_PORT}/readiness'
request = urllib.request.Request(url, headers={{'Authorization': 'Bearer ' + key}})
urllib.request.urlopen(request, timeout=4)
"""


def router_deployment(od: OasisDeployment, image: str, revision: str) -> Manifest:
    """Sends requests to the engines of ``revision`` and to no others."""
    chosen = selector(od, Component.ROUTER) | {REVISION_LABEL: revision}
    deployment = manifest(
        od,
        "apps/v1",
        "Deployment",
        workload_name(od, revision, Component.ROUTER),
        Component.ROUTER,
        {REVISION_LABEL: revision},
    ) | {
        "spec": {
            "replicas": od.spec.router.replicas,
            "revisionHistoryLimit": 1,
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            },
            "selector": {"matchLabels": chosen},
            "template": {
                "metadata": {
                    "labels": labels(od, Component.ROUTER) | chosen,
                    "annotations": scrape_annotations(ROUTER_METRICS_PORT),
                },
                "spec": {
                    "serviceAccountName": component_name(od, Component.ROUTER),
                    "enableServiceLinks": False,
                    "securityContext": pod_security(),
                    "terminationGracePeriodSeconds": router_grace_seconds(od),
                    "containers": [_container(od, image, revision)],
                    "volumes": [
                        {"name": "tmp", "emptyDir": {}},
                        {"name": "home", "emptyDir": {}},
                    ],
                    **image_pull_secrets(od),
                    **scheduling(od.spec.router.node_selector, od.spec.router.tolerations),
                },
            },
        }
    }
    from_spec = [IMAGE] if od.spec.router.image else []
    return with_inputs(deployment, _inputs(od, image, revision), from_spec)


def _inputs(od: OasisDeployment, image: str, revision: str) -> Any:
    """What router pods follow from; mode and key are in the revision."""
    own = od.spec.router.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, exclude={"replicas"}
    )
    return {"router": own, "image": image, "revision": revision}


def _container(od: OasisDeployment, image: str, revision: str) -> Manifest:
    container: Manifest = {
        "name": ROUTER_CONTAINER,
        "image": image,
        "command": ["vllm-router"],
        "args": _arguments(od, revision),
        "env": [{"name": "HOME", "value": HOME}],
        "ports": [
            {"name": "http", "containerPort": ROUTER_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": ROUTER_METRICS_PORT, "protocol": "TCP"},
        ],
        "resources": resources(od.spec.router.resources),
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "home", "mountPath": HOME},
        ],
        "securityContext": container_security(),
        # /readiness says whether each role has a worker; /health is 200 without any.
        "readinessProbe": http_probe("/readiness", period=2, failures=3),
        "livenessProbe": http_probe("/liveness", period=10, failures=6),
        "lifecycle": {"preStop": router_pre_stop()},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    key = od.spec.security.api_key_secret
    if key is not None:
        container["env"].append(secret_env("OPENAI_API_KEY", key))
        if is_disaggregated(od):
            _check_keys(od, container)
    return container


def _check_keys(od: OasisDeployment, container: Manifest) -> None:
    url = models_url(od, Component.DECODE)
    container["command"] = ["python", "-c", _LAUNCH_WITH_KEY_CHECK, url]
    container["livenessProbe"] = tcp_probe(period=10, failures=6)
    container["readinessProbe"] = {
        "exec": {"command": ["python", "-c", _READY_WITH_KEY]},
        "periodSeconds": 5,
        "timeoutSeconds": TIMEOUT_SECONDS,
        "failureThreshold": 3,
    }


def _arguments(od: OasisDeployment, revision: str) -> list[str]:
    def pods(component: Component) -> list[str]:
        chosen = selector(od, component) | {REVISION_LABEL: revision}
        return [f"{key}={value}" for key, value in chosen.items()]

    if is_disaggregated(od):
        mode = [
            "--vllm-pd-disaggregation",
            "--prefill-selector",
            *pods(Component.PREFILL),
            "--decode-selector",
            *pods(Component.DECODE),
        ]
    else:
        mode = ["--selector", *pods(Component.DECODE)]
    return [
        "--host=0.0.0.0",
        f"--port={ROUTER_PORT}",
        "--prometheus-host=0.0.0.0",
        f"--prometheus-port={ROUTER_METRICS_PORT}",
        f"--health-check-interval-secs={HEALTH_CHECK_SECONDS}",
        f"--worker-startup-timeout-secs={WORKER_STARTUP_SECONDS}",
        "--worker-startup-check-interval=1",
        "--service-discovery",
        f"--service-discovery-port={HTTP_PORT}",
        f"--service-discovery-namespace={od.namespace}",
        *([f"--policy={od.spec.router.policy}"] if od.spec.router.policy else ()),
        *mode,
    ]
