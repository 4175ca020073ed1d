"""Requests to the API server without a process for each: thousands of small ones."""

from __future__ import annotations

import http.client
import json
import urllib.parse
from typing import Any

from testbed import wait
from testbed.controlplane.bed import ControlPlane

ODEPS = "/apis/oasiskv.io/v1alpha1/namespaces/{namespace}/oasisdeployments"


class ApiClient:
    """One kept connection with all rights."""

    def __init__(self, plane: ControlPlane) -> None:
        pki = plane.layout.pki
        tls = wait.trusting(pki / "ca.crt", (pki / "admin.crt", pki / "admin.key"))
        host = urllib.parse.urlsplit(plane.server).netloc
        self._connection = http.client.HTTPSConnection(host, context=tls, timeout=30)

    def create(self, namespace: str, name: str, spec: object) -> str:
        """Creates an OasisDeployment; what the API server says against it, empty if nothing."""
        body = {
            "apiVersion": "oasiskv.io/v1alpha1",
            "kind": "OasisDeployment",
            "metadata": {"name": name},
            "spec": spec,
        }
        path = f"{ODEPS.format(namespace=namespace)}?fieldValidation=Strict"
        status, answer = self._request("POST", path, json.dumps(body))
        return "" if status == 201 else str(answer["message"])

    def deployments(self, namespace: str) -> dict[str, dict[str, Any]]:
        """Every OasisDeployment of a namespace by its name."""
        _, answer = self._request("GET", ODEPS.format(namespace=namespace))
        return {item["metadata"]["name"]: item for item in answer["items"]}

    def pods(self, namespace: str) -> list[dict[str, Any]]:
        """Those of all OasisDeployments of a namespace."""
        query = urllib.parse.urlencode({"labelSelector": "oasiskv.io/deployment"})
        _, answer = self._request("GET", f"/api/v1/namespaces/{namespace}/pods?{query}")
        found: list[dict[str, Any]] = answer["items"]
        return found

    def _request(self, method: str, path: str, body: str | None = None) -> tuple[int, Any]:
        self._connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read())
