"""A cluster with OasisDeployments in it, as the tests look at it."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from testbed import wait
from testbed.controlplane.bed import ControlPlane

Manifest = dict[str, Any]
OWNED = "deployments,services,configmaps,serviceaccounts,roles,rolebindings,pdb,networkpolicies"
SECONDS = 60.0
ANNOTATIONS = "test.oasiskv.io"


def spec(**fields: Any) -> Manifest:
    """A spec of two roles whose fake pods become ready at once."""
    given = {"model": {"image": {"path": "/models/tiny"}}, "prefill": {}, **fields}
    return {key: value for key, value in given.items() if value is not None}


def fake(annotation: str, value: str = "") -> Manifest:
    """A role whose fake pods do what the annotation says."""
    annotations = {f"{ANNOTATIONS}/{annotation}": value}
    return {"podTemplate": {"metadata": {"annotations": annotations}}}


def waiting(state: Manifest, last: Manifest | None = None) -> Manifest:
    """What a kubelet says of a pod whose engine is not ready."""
    container = {
        "name": "engine",
        "image": "runtime:test",
        "imageID": "",
        "ready": False,
        "restartCount": 1,
        "state": state,
        "lastState": last or {},
    }
    return {"containerStatuses": [container]}


class World:
    """One namespace of a control plane."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace

    def kubectl(self, *arguments: str, manifest: object | None = None) -> str:
        return self.plane.kubectl("-n", self.namespace, *arguments, manifest=manifest)

    def get(self, *arguments: str) -> Any:
        return json.loads(
            self.kubectl("get", "-o", "json", "--ignore-not-found", *arguments) or "{}"
        )

    def owned(self, kinds: str, name: str = "") -> list[Manifest]:
        label = f"oasiskv.io/deployment={name}" if name else "oasiskv.io/deployment"
        items: list[Manifest] = self.get(kinds, "-l", label).get("items", [])
        return items

    def apply(self, name: str, given: Manifest) -> None:
        self.kubectl(
            "apply",
            "-f",
            "-",
            manifest={
                "apiVersion": "oasiskv.io/v1alpha1",
                "kind": "OasisDeployment",
                "metadata": {"name": name},
                "spec": given,
            },
        )

    def refused(self, name: str, given: Manifest) -> str:
        """What the API server says against a spec; empty if it takes it."""
        body = {
            "apiVersion": "oasiskv.io/v1alpha1",
            "kind": "OasisDeployment",
            "metadata": {"name": name},
            "spec": given,
        }
        done = subprocess.run(
            [self.plane.kubectl_path, "-n", self.namespace, "create", "--dry-run=server", "-f-"],
            input=json.dumps(body),
            capture_output=True,
            text=True,
            env=self.plane.environment(),
            check=False,
        )
        return done.stderr if done.returncode else ""

    def status(self, name: str) -> Manifest:
        found: Manifest = self.get("odep", name).get("status", {})
        return found

    def condition(self, name: str, kind: str) -> Manifest:
        conditions = self.status(name).get("conditions", [])
        return next((item for item in conditions if item["type"] == kind), {})

    def until_condition(
        self, name: str, kind: str, status: str, reason: str = "", timeout: float = SECONDS
    ) -> Manifest:
        """Waits for a condition of the present generation; the condition."""
        found: Manifest = {}

        def holds() -> bool:
            nonlocal found
            body = self.get("odep", name)
            conditions = body.get("status", {}).get("conditions", [])
            found = next((item for item in conditions if item["type"] == kind), {})
            return (
                found.get("status") == status
                and found.get("reason", "").startswith(reason)
                and found.get("observedGeneration") == body["metadata"]["generation"]
            )

        try:
            wait.until(holds, f"{kind}={status} {reason}", timeout)
        except Exception as late:
            raise AssertionError(f"{late}; it is {found}") from late
        return found

    def until_ready(self, name: str) -> None:
        """Waits for all of its pods: Ready alone bears that some are being added."""
        wanted = ("Ready", "PrefillReady", "DecodeReady", "RouterReady")
        found: dict[str, str] = {}

        def holds() -> bool:
            nonlocal found
            body = self.get("odep", name)
            conditions = body.get("status", {}).get("conditions", [])
            found = {
                item["type"]: item["status"]
                if item["observedGeneration"] == body["metadata"]["generation"]
                else "stale"
                for item in conditions
                if item["type"] in wanted
            }
            return "Ready" in found and set(found.values()) == {"True"}

        try:
            wait.until(holds, f"all pods of {name}", SECONDS)
        except Exception as late:
            told = self.status(name).get("conditions")
            raise AssertionError(f"{late}; it is {found}: {told}") from late

    def pods(self, name: str, component: str) -> list[Manifest]:
        return [
            pod
            for pod in self.owned("pods", name)
            if pod["metadata"]["labels"]["oasiskv.io/component"] == component
            and "deletionTimestamp" not in pod["metadata"]
        ]

    def until_pod(self, name: str, component: str) -> Manifest:
        """Waits for a pod that is bound to a node."""
        wait.until(
            lambda: any(p["spec"].get("nodeName") for p in self.pods(name, component)),
            f"a {component} pod",
            SECONDS,
        )
        return self.pods(name, component)[0]

    def patch_pod_status(self, pod: Manifest, status: Manifest) -> None:
        """What a kubelet would write."""
        self.kubectl(
            "patch",
            "pod",
            pod["metadata"]["name"],
            "--subresource=status",
            "--type=merge",
            "-p",
            json.dumps({"status": status}),
        )

    def versions(self, name: str) -> dict[str, tuple[str, str]]:
        """Every owned object and the resource itself -> uid and version.

        Where controllers of the cluster write a status, its generation; else its resourceVersion.
        """
        items = [*self.owned(OWNED, name), *self.owned("pods", name), self.get("odep", name)]
        return {f"{item['kind']}/{item['metadata']['name']}": _version(item) for item in items}

    def content(self, name: str) -> dict[str, str]:
        """What the objects of an OasisDeployment say, in words without its name."""
        out = {}
        for item in self.owned(f"{OWNED},oasisroles", name):
            parts = {key: item[key] for key in ("spec", "data", "rules", "subjects") if key in item}
            for allocated in ("clusterIP", "clusterIPs"):
                parts.get("spec", {}).pop(allocated, None)
            known = f"{item['kind']}/{item['metadata']['name'].replace(name, 'NAME')}"
            out[known] = json.dumps(parts, sort_keys=True).replace(name, "NAME")
        return out

    def events(self, name: str) -> list[Manifest]:
        items: list[Manifest] = self.get(
            "events", "--field-selector", f"involvedObject.name={name}"
        ).get("items", [])
        return items


def _version(item: Manifest) -> tuple[str, str]:
    metadata = item["metadata"]
    written_by_others = item["kind"] in ("Deployment", "Pod", "PodDisruptionBudget")
    version = metadata["generation" if written_by_others else "resourceVersion"]
    return metadata["uid"], str(version)
