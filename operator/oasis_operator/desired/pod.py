"""Pod template of an engine."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from oasis_operator.api.resource import OasisDeployment
from oasis_operator.api.spec import Resources
from oasis_operator.desired.devices import AllocationMode, with_devices
from oasis_operator.desired.drain import drain_command, engine_grace_seconds
from oasis_operator.desired.metadata import (
    COMPONENT_LABEL,
    DEPLOYMENT_LABEL,
    Manifest,
    labels,
    selector,
    workers_of,
)
from oasis_operator.desired.model import hub_environment, secret_env, sources
from oasis_operator.desired.override import OverrideError, overridden
from oasis_operator.desired.probes import http_probe, startup_probe
from oasis_operator.desired.roles import RolePlan
from oasis_operator.desired.scheduling import scheduling
from oasis_operator.desired.security_context import (
    container_security,
    image_pull_secrets,
    pod_security,
)
from oasis_runtime.contract import (
    ENGINE_CONFIG_PATH,
    HTTP_PORT,
    NODE_LEADER_VARIABLE,
    NODE_RANK_VARIABLE,
    TRANSFER_PORT,
)

ENGINE_CONTAINER = "engine"
HOME = "/home/oasiskv"


def engine_pod(
    od: OasisDeployment,
    role: RolePlan,
    image: str,
    config_map: str,
    mode: AllocationMode = "kubelet",
) -> Manifest:
    """The template without its revision, with the user's override merged over it.

    Of an engine on several nodes it is the pod that answers for all of them.

    Raises:
        OverrideError: what the override makes of it is no pod.
    """
    template: Manifest = {
        "metadata": {
            "labels": labels(od, role.component),
            "annotations": scrape_annotations(HTTP_PORT),
        },
        "spec": with_devices(_pod_spec(od, role, image, config_map), od, role, mode),
    }
    template = _overridden(template, role)
    # Selectors, the router's discovery and the operator's own watch stand on these.
    template["metadata"]["labels"] |= selector(od, role.component)
    return template


def worker_pod(
    od: OasisDeployment, role: RolePlan, image: str, mode: AllocationMode = "kubelet"
) -> Manifest:
    """As :func:`engine_pod`, the other pods of an engine on several nodes.

    They have no API, and end when the one that answers has nothing more to do.
    """
    component = workers_of(role.component)
    spec = with_devices(_pod_spec(od, role, image, config_map=""), od, role, mode)
    engine, *others = spec["containers"]
    of_a_server = ("startupProbe", "readinessProbe", "livenessProbe")
    worker = {key: value for key, value in engine.items() if key not in of_a_server}
    worker["ports"] = [port for port in engine["ports"] if port["name"] != "http"]
    template: Manifest = {
        "metadata": {"labels": labels(od, role.component)},
        "spec": spec | {"containers": [worker, *others]},
    }
    template = _overridden(template, role)
    template["metadata"]["labels"] |= {DEPLOYMENT_LABEL: od.name, COMPONENT_LABEL: component}
    return template


def _overridden(template: Manifest, role: RolePlan) -> Manifest:
    try:
        return overridden(template, role.spec.pod_template or {})
    except OverrideError as error:
        raise OverrideError(f"spec.{role.component}.podTemplate: {error}") from error


def scrape_annotations(port: int) -> dict[str, str]:
    """What Prometheus configurations for pods conventionally look for."""
    return {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(port),
        "prometheus.io/path": "/metrics",
    }


def resources(section: Resources | None) -> Manifest:
    """The container's resources as the API writes them."""
    if section is None:
        return {}
    return {
        name: {key: str(value) for key, value in amounts.items()}
        for name, amounts in (("requests", section.requests), ("limits", section.limits))
        if amounts
    }


def _pod_spec(od: OasisDeployment, role: RolePlan, image: str, config_map: str) -> Manifest:
    loaded = sources(od.spec)
    scratch = (("tmp", "/tmp"), ("home", HOME))
    volumes: list[Manifest] = [
        {"name": "config", "configMap": {"name": config_map}},
        *({"name": name, "emptyDir": {}} for name, _ in scratch),
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        *(volume for source in loaded for volume in source.volumes),
    ]
    mounts: list[Manifest] = [
        {
            "name": "config",
            "mountPath": str(PurePosixPath(ENGINE_CONFIG_PATH).parent),
            "readOnly": True,
        },
        *({"name": name, "mountPath": path} for name, path in scratch),
        {"name": "shm", "mountPath": "/dev/shm"},
        *(mount for source in loaded for mount in source.mounts),
    ]
    # The default seccomp profile lets only containers with it set a memory policy.
    capabilities = ("SYS_NICE",) if od.spec.topology.numa.bind_memory else ()
    container: Manifest = {
        "name": ENGINE_CONTAINER,
        "image": image,
        "command": ["python", "-m", "oasis_runtime", "serve", "--config", ENGINE_CONFIG_PATH],
        "env": _environment(od, hub_environment(loaded)),
        "ports": [
            {"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"},
            {"name": "transfer", "containerPort": TRANSFER_PORT, "protocol": "TCP"},
        ],
        "resources": resources(role.spec.resources),
        "volumeMounts": mounts,
        "securityContext": container_security(*capabilities),
        "startupProbe": startup_probe("/health", od.spec.updates.progress_deadline_seconds),
        "readinessProbe": http_probe("/health", period=5, failures=3),
        "livenessProbe": http_probe("/health", period=10, failures=6),
        "lifecycle": {"preStop": {"exec": {"command": drain_command(od, role)}}},
        # An engine that gives up writes why; one that crashes leaves the end of its log.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    spec: Manifest = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(),
        "terminationGracePeriodSeconds": engine_grace_seconds(od),
        "containers": [container],
        "volumes": volumes,
    }
    return (
        spec | image_pull_secrets(od) | scheduling(role.spec.node_selector, role.spec.tolerations)
    )


def _environment(od: OasisDeployment, hub: list[Manifest]) -> list[Any]:
    env: list[Manifest] = [
        {
            "name": "OASIS_TRANSFER_HOST",
            "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
        },
        {"name": "HOME", "value": HOME},
        # The number that the pod runs as has no name in the image's /etc/passwd.
        {"name": "USER", "value": "oasiskv"},
        {"name": "VLLM_NO_USAGE_STATS", "value": "1"},
        *hub,
    ]
    if od.spec.engine.nodes > 1:
        # What they stand for the LeaderWorkerSet's controller puts before all others.
        env += [
            {"name": NODE_RANK_VARIABLE, "value": "$(LWS_WORKER_INDEX)"},
            {"name": NODE_LEADER_VARIABLE, "value": "$(LWS_LEADER_ADDRESS)"},
        ]
    key = od.spec.security.api_key_secret
    if key is not None:
        env.append(secret_env("VLLM_API_KEY", key))
    return env
