"""LeaderWorkerSet in a control plane: its real API, controllers and webhooks."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testbed import commandenv, processes, programs, wait
from testbed.controlplane.bed import ControlPlane, free_ports

PROGRAM = "lws"
CRD_FILE = "leaderworkerset.x-k8s.io_leaderworkersets.yaml"
CRD = "crd/leaderworkersets.leaderworkerset.x-k8s.io"
LABEL = "leaderworkerset.sigs.k8s.io/name"
WEBHOOKS = "lws-mutating"
START_SECONDS = 60.0

Manifest = dict[str, Any]


@contextmanager
def leader_worker_sets(plane: ControlPlane) -> Iterator[None]:
    """The cluster serves LeaderWorkerSets meanwhile, and has none before and after."""
    program = programs.find([PROGRAM])[PROGRAM]
    plane.kubectl("create", "-f", str(program.with_name(CRD_FILE)))
    try:
        _until_served(plane)
        with _controller(plane, program) as port:
            plane.kubectl("create", "-f", "-", manifest=webhooks(plane.layout.pki, port))
            try:
                yield
            finally:
                plane.kubectl("delete", "mutatingwebhookconfiguration", WEBHOOKS)
    finally:
        plane.kubectl("delete", CRD)


def _until_served(plane: ControlPlane) -> None:
    pki = plane.layout.pki
    tls = wait.trusting(pki / "ca.crt", (pki / "admin.crt", pki / "admin.key"))
    path = "/apis/leaderworkerset.x-k8s.io/v1/leaderworkersets"
    wait.until(lambda: wait.answers(plane.server + path, tls), "its API", START_SECONDS)


@contextmanager
def _controller(plane: ControlPlane, program: Path) -> Iterator[int]:
    """Controllers and webhooks as one process; the port of the webhooks."""
    folder = plane.folder / PROGRAM
    folder.mkdir()
    for name in ("crt", "key"):
        # It names 127.0.0.1, where the webhooks listen too.
        shutil.copyfile(plane.layout.pki / f"apiserver.{name}", folder / f"tls.{name}")
    port, health = free_ports(2)
    file = folder / "config.json"
    file.write_text(json.dumps(configuration(folder, port, health)))
    process = processes.spawn(
        PROGRAM,
        [program, f"--config={file}", "--zap-log-level=info"],
        plane.layout.logs / f"{PROGRAM}.log",
        commandenv.with_tools(plane.kubeconfig),
    )

    def alive() -> None:
        processes.require_running([process], plane.layout.logs)

    try:
        ready = f"http://127.0.0.1:{health}/readyz"
        wait.until(lambda: wait.answers(ready), "LeaderWorkerSet", START_SECONDS, alive)
        wait.until(lambda: wait.listens(port), "its webhooks", START_SECONDS, alive)
        yield port
    finally:
        processes.stop(process)
        shutil.rmtree(folder)


def configuration(folder: Path, port: int, health: int) -> Manifest:
    """Its configuration file: one replica, which nobody measures, with certificates of ours."""
    return {
        "apiVersion": "config.lws.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(folder)},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
    }


def webhooks(pki: Path, port: int) -> Manifest:
    """What fills in LeaderWorkerSets and their pods, as in its manifests, but for the address: the
    controller is no pod. Other pods are left out, which it passes on as they are."""
    authority = base64.b64encode((pki / "ca.crt").read_bytes()).decode()

    def hook(name: str, path: str, rule: Manifest, chosen: Manifest) -> Manifest:
        return {
            "name": name,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "clientConfig": {"url": f"https://127.0.0.1:{port}{path}", "caBundle": authority},
            "rules": [{**rule, "apiVersions": ["v1"]}],
            **chosen,
        }

    sets = {
        "apiGroups": ["leaderworkerset.x-k8s.io"],
        "resources": ["leaderworkersets"],
        "operations": ["CREATE", "UPDATE"],
    }
    pods = {"apiGroups": [""], "resources": ["pods"], "operations": ["CREATE"]}
    theirs = {"objectSelector": {"matchExpressions": [{"key": LABEL, "operator": "Exists"}]}}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": WEBHOOKS},
        "webhooks": [
            hook("sets.lws.test", "/mutate-leaderworkerset-x-k8s-io-v1-leaderworkerset", sets, {}),
            hook("pods.lws.test", "/mutate--v1-pod", pods, theirs),
        ],
    }
