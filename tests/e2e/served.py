"""An OasisDeployment in the cluster, as its user and its clients see it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
from openai import OpenAI

from oasis_operator.desired.metadata import COMPONENT_LABEL, DEPLOYMENT_LABEL
from oasis_runtime.contract import HTTP_PORT
from testbed import wait
from testbed.node.cluster import Cluster
from testbed.problem import Problem
from tests.engine.metrics import Metrics

Manifest = dict[str, Any]

READY_SECONDS = 240
"""Both engines take 35 s on two idle cores; other work on the machine makes it slower."""
GONE_SECONDS = 120
"""A deleted engine ends when nobody waits for it, after at most a minute and a margin."""
ANSWER_SECONDS = 150
KINDS = (
    "deployments,replicasets,pods,services,configmaps,poddisruptionbudgets,networkpolicies,"
    "serviceaccounts,roles,rolebindings"
)
"""All that an OasisDeployment is made of."""


@dataclass(frozen=True)
class Pod:
    """One pod of a deployment."""

    name: str
    uid: str
    address: str
    ready: bool
    ending: bool
    restarts: int

    @staticmethod
    def of(body: Mapping[str, Any]) -> Pod:
        status = body["status"]
        conditions = {c["type"]: c["status"] for c in status.get("conditions", [])}
        return Pod(
            name=body["metadata"]["name"],
            uid=body["metadata"]["uid"],
            address=status.get("podIP", ""),
            ready=conditions.get("Ready") == "True",
            ending="deletionTimestamp" in body["metadata"],
            restarts=sum(c["restartCount"] for c in status.get("containerStatuses", [])),
        )

    @property
    def url(self) -> str:
        """The engine's own API, past the router."""
        return f"http://{self.address}:{HTTP_PORT}"

    def metrics(self) -> Metrics:
        answer = httpx.get(f"{self.url}/metrics", timeout=10)
        answer.raise_for_status()
        return Metrics.parse(answer.text)

    def running_requests(self) -> float:
        return self.metrics().value("vllm:num_requests_running")


@dataclass(frozen=True)
class Served:
    """One OasisDeployment."""

    cluster: Cluster
    namespace: str
    name: str

    def kubectl(self, *words: str, manifest: object | None = None) -> str:
        return self.cluster.kubectl("-n", self.namespace, *words, manifest=manifest)

    def body(self) -> Manifest:
        found: Manifest = json.loads(self.kubectl("get", "odep", self.name, "-ojson"))
        return found

    def status(self) -> Manifest:
        status: Manifest = self.body().get("status", {})
        return status

    def condition(self, kind: str) -> Mapping[str, str]:
        """Empty until the operator has judged the current spec."""
        body = self.body()
        for item in body.get("status", {}).get("conditions", []):
            if (
                item["type"] == kind
                and item["observedGeneration"] == body["metadata"]["generation"]
            ):
                return dict(item)
        return {}

    def apply(self, manifest: Manifest) -> None:
        self.kubectl("apply", "-f", "-", manifest=manifest)

    def delete(self) -> None:
        """And wait until the garbage collector and the kubelet are done."""
        self.kubectl("delete", "odep", self.name, "--ignore-not-found")
        wait.until(lambda: not self.objects(), f"the end of {self.name}", GONE_SECONDS, every=0.5)

    def objects(self) -> list[str]:
        """What there is of it besides the OasisDeployment."""
        chosen = f"{DEPLOYMENT_LABEL}={self.name}"
        return self.kubectl("get", KINDS, "-l", chosen, "-oname").split()

    def pods(self, component: str | None = None) -> list[Pod]:
        chosen = f"{DEPLOYMENT_LABEL}={self.name}"
        if component is not None:
            chosen += f",{COMPONENT_LABEL}={component}"
        found = json.loads(self.kubectl("get", "pods", "-l", chosen, "-ojson"))
        return [Pod.of(body) for body in found["items"]]

    def engine(self, component: str) -> Pod:
        """The one pod of a role."""
        (pod,) = self.pods(component)
        return pod

    def until_ready(self) -> None:
        """Until the operator says so of this spec, and no pod comes or goes."""

        def ready() -> bool:
            pods = self.pods()
            return (
                self.condition("Ready").get("status") == "True"
                # Ready alone bears that pods are being added; there may be no prefill pods.
                and self.condition("DecodeReady").get("status") == "True"
                and self.condition("PrefillReady").get("status", "True") == "True"
                and bool(pods)
                and all(pod.ready and not pod.ending for pod in pods)
            )

        try:
            wait.until(ready, f"{self.name} to be Ready", READY_SECONDS, every=0.5)
        except Problem as problem:
            pods = self.kubectl("get", "pods")
            raise Problem(f"{problem}; Ready: {dict(self.condition('Ready'))}\n{pods}") from problem

    def kill(self, pod: Pod) -> None:
        """At once, as a node that is gone takes its pods with it."""
        self.kubectl("delete", "pod", pod.name, "--grace-period=0", "--force")

    def endpoint(self) -> str:
        endpoint: str = self.status()["endpoint"]
        return endpoint

    def client(self, retries: int = 0) -> OpenAI:
        return OpenAI(
            base_url=self.endpoint(),
            api_key="unused",
            max_retries=retries,
            timeout=ANSWER_SECONDS,
        )
