"""Replicas follow what a real Prometheus says of the engines."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from testbed import wait
from testbed.monitoring.local import serving
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.world import SECONDS, World, spec

SCALING = {
    "decode": {"maxReplicas": 3},
    "prefill": {"maxReplicas": 3},
    "scaleDownSeconds": 0,
    "warmUpSeconds": 0,
}
IDLE = """\
vllm:num_requests_running 0
vllm:num_requests_waiting 0
vllm:prompt_tokens_by_source_total{source="local_compute"} 0
vllm:request_queue_time_seconds_count 0
vllm:request_queue_time_seconds_bucket{le="+Inf"} 0
vllm:time_to_first_token_seconds_count 0
vllm:inter_token_latency_seconds_count 0
oasis_pages_selected_total 0
oasis_pages_resident_total 0
oasis_attention_mass_recall_sum 0
oasis_attention_mass_recall_count 0
oasis_exports_outstanding 0
oasis_export_oldest_age_seconds 0
oasis_link_bandwidth_bytes_per_second{link="host_fast"} 1e10
oasis_link_bandwidth_bytes_per_second{link="network"} -1
"""


@dataclass
class Engines:
    """Metrics of every pod, and the Prometheus that scrapes them."""

    port: int
    folder: Path
    url: str = ""
    exposition: dict[str, str] = field(default_factory=dict)
    """By component."""

    def scrape(self, world: World, name: str) -> None:
        """Have every pod there is scraped under its name."""
        targets = [
            {
                "targets": [f"127.0.0.1:{self.port}"],
                "labels": {
                    "__metrics_path__": f"/{component}",
                    "namespace": world.namespace,
                    "pod": pod["metadata"]["name"],
                },
            }
            for component in ("prefill", "decode")
            for pod in world.pods(name, component)
        ]
        fresh = self.folder / "targets.new"
        fresh.write_text(json.dumps(targets))
        fresh.replace(self.folder / "targets.json")


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[Engines]:
    found = Engines(0, tmp_path, exposition={"prefill": IDLE, "decode": IDLE})

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(found.exposition[self.path.strip("/")].encode())

        def log_message(self, format: str, *args: object) -> None:
            """Scrapes are not worth a line."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    found.port = server.server_port
    (tmp_path / "targets.json").write_text("[]")
    job = {
        "job_name": "pods",
        "file_sd_configs": [{"files": ["targets.json"], "refresh_interval": "1s"}],
    }
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}
    try:
        with serving(tmp_path, json.dumps(config)) as url:
            found.url = url
            yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_load_adds_pods_and_its_end_takes_them_away(
    world: World, engines: Engines, start_operator: Callable[..., OperatorProcess]
) -> None:
    operator = start_operator("one", OASIS_PROMETHEUS_URL=engines.url).until_leading()
    world.apply("chat", spec(autoscaling=SCALING, engine={"maxNumSeqs": 14}))
    world.until_ready("chat")
    held = world.until_condition("chat", "ScalingActive", "False", "WarmingUp")
    # The first look may have come before the decode pod, and holds until the next.
    wait.until(
        lambda: "requests of decode" in world.condition("chat", "ScalingActive")["message"],
        f"a word about decode (after {held['message']})",
        SECONDS,
    )

    def until_pods(prefill: int, decode: int) -> None:
        def so_many() -> bool:
            engines.scrape(world, "chat")
            found = (len(world.pods("chat", "prefill")), len(world.pods("chat", "decode")))
            return found == (prefill, decode)

        wait.until(so_many, f"{prefill} prefill and {decode} decode pods", SECONDS)

    until_pods(1, 1)
    world.until_condition("chat", "ScalingActive", "True", "Deciding")
    engines.exposition["decode"] = IDLE.replace("running 0", "running 14")
    until_pods(1, 2)
    world.until_ready("chat")
    told = [event for event in world.events("chat") if event["reason"] == "Autoscaled"]
    assert "decode from 1 to 2 pods (Load)" in told[0]["message"]
    exposition = operator.exposition()
    where = f'oasiskv_deployment="chat",oasiskv_namespace="{world.namespace}"'
    assert f'oasis_desired_replicas{{{where},role="decode"}} 2.0' in exposition
    assert f'oasis_scale_decisions_total{{{where},reason="Load",role="decode"}}' in exposition
    engines.exposition["decode"] = IDLE
    until_pods(1, 1)


EXTERNAL = {"owner": "external"}


def scaled(world: World, name: str) -> tuple[int | None, int | None]:
    """Desired and current replicas of a role, as far as they are written."""
    body = world.get("oasisrole", name)
    return body.get("spec", {}).get("replicas"), body.get("status", {}).get("replicas")


@pytest.mark.usefixtures("operator")
def test_an_external_owner_scales_a_role_under_a_name_that_stays(world: World) -> None:
    world.apply("chat", spec(autoscaling=EXTERNAL, decode={"replicas": 2}))
    world.until_ready("chat")
    world.until_condition("chat", "ScalingActive", "Unknown", "ExternalOwner")
    wait.until(lambda: scaled(world, "chat-decode") == (2, 2), "the first replicas", SECONDS)
    world.kubectl("scale", "oasisrole/chat-decode", "--replicas=3")
    wait.until(lambda: scaled(world, "chat-decode") == (3, 3), "three pods", SECONDS)
    assert len(world.pods("chat", "decode")) == 3
    world.apply("chat", spec(autoscaling=EXTERNAL, image="runtime:next"))
    world.until_ready("chat")
    wait.until(lambda: scaled(world, "chat-decode") == (3, 3), "the same three", SECONDS)


def autoscale(world: World, name: str, role: str, least: int) -> None:
    """Makes a HorizontalPodAutoscaler of a role."""
    world.kubectl(
        "apply",
        "-f",
        "-",
        manifest={
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name},
            "spec": {
                "scaleTargetRef": {
                    "apiVersion": "oasiskv.io/v1alpha1",
                    "kind": "OasisRole",
                    "name": role,
                },
                "minReplicas": least,
                "maxReplicas": 5,
                "metrics": [
                    {
                        "type": "Resource",
                        "resource": {
                            "name": "cpu",
                            "target": {"type": "AverageValue", "averageValue": "1"},
                        },
                    }
                ],
            },
        },
    )


def until_told(world: World, name: str, kind: str, reason: str) -> str:
    """The message of an autoscaler's condition, once it has this reason."""

    def found() -> list[str]:
        given = world.get("hpa", name).get("status", {}).get("conditions", [])
        return [c["message"] for c in given if (c["type"], c["reason"]) == (kind, reason)]

    wait.until(lambda: bool(found()), f"{kind} of {name} to be {reason}", SECONDS)
    return found()[0]


@pytest.mark.usefixtures("operator")
def test_a_horizontal_pod_autoscaler_scales_a_role(world: World) -> None:
    world.apply("chat", spec(autoscaling=EXTERNAL))
    world.until_ready("chat")
    wait.until(lambda: scaled(world, "chat-decode") == (1, 1), "the first replicas", SECONDS)
    autoscale(world, "decode", "chat-decode", least=3)
    wait.until(lambda: len(world.pods("chat", "decode")) == 3, "the autoscaler's least", SECONDS)
    able = [
        condition
        for condition in world.get("hpa", "decode")["status"]["conditions"]
        if condition["type"] == "AbleToScale"
    ]
    assert able[0]["status"] == "True"


@pytest.mark.usefixtures("operator")
def test_an_autoscaler_measures_the_pods_of_its_role_and_of_no_other(world: World) -> None:
    """Before it asks for their metrics, which nobody serves here, Kubernetes' controller looks
    whose pods the selector of /scale finds, and refuses pods that two autoscalers find."""
    world.apply("chat", spec(autoscaling=EXTERNAL))
    world.until_ready("chat")
    wait.until(lambda: scaled(world, "chat-decode") == (1, 1), "the first replicas", SECONDS)
    wait.until(lambda: scaled(world, "chat-prefill") == (1, 1), "those of prefill", SECONDS)
    for role in ("prefill", "decode"):
        autoscale(world, role, f"chat-{role}", least=1)
    for role in ("prefill", "decode"):
        told = until_told(world, role, "ScalingActive", "FailedGetResourceMetric")
        assert "metrics.k8s.io" in told
    autoscale(world, "rival", "chat-decode", least=1)
    until_told(world, "rival", "ScalingActive", "AmbiguousSelector")
    told = until_told(world, "decode", "ScalingActive", "AmbiguousSelector")
    given = world.get("oasisrole", "chat-decode")["status"]["selector"]
    selector = ",".join(sorted(given.split(",")))
    assert f"pods by selector {selector} are controlled by multiple HPAs" in told
    until_told(world, "prefill", "ScalingActive", "FailedGetResourceMetric")
