"""Addresses and files of the node bed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from testbed import cache
from testbed.controlplane.commands import API_SERVICE_ADDRESS
from testbed.pki import Certificate

NODE = "testbed"
ADDRESS = "172.31.255.1"
"""The node's own address, reachable from pods; DNS and the API server answer here."""
API_PORT = 6443
SERVER = f"https://{ADDRESS}:{API_PORT}"
POD_CIDR = "10.244.0.0/24"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
CONTAINERD_NAMESPACE = "k8s.io"
PAUSE_IMAGE = "localhost/oasiskv/pause:testbed"

CERTIFICATES = (
    Certificate(
        "apiserver",
        "kube-apiserver",
        dns=(
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ),
        addresses=("127.0.0.1", ADDRESS, API_SERVICE_ADDRESS),
    ),
    Certificate("kubelet-server", NODE, dns=(NODE,), addresses=(ADDRESS,)),
    Certificate("kubelet-client", "apiserver-kubelet-client", organization="system:masters"),
    Certificate("admin", "admin", organization="system:masters"),
    Certificate("kcm", "system:kube-controller-manager"),
    Certificate("scheduler", "system:kube-scheduler"),
    Certificate("kubelet", f"system:node:{NODE}", organization="system:nodes"),
    Certificate("kube-proxy", "system:kube-proxy"),
    Certificate("coredns", "testbed:coredns"),
    Certificate("front-proxy", "front-proxy"),
)
CLIENTS = ("admin", "kcm", "scheduler", "kubelet", "kube-proxy", "coredns")
"""Certificates that get a kubeconfig."""


@dataclass(frozen=True)
class Layout:
    """Files of the bed. There is one bed at a time: its pods own the cgroup ``/kubepods``."""

    folder: Path

    @staticmethod
    def default() -> Layout:
        return Layout(cache.root() / "node")

    @property
    def state(self) -> Path:
        """What dies with the bed."""
        return self.folder / "state"

    @property
    def containerd(self) -> Path:
        """Images: kept, so that the next bed need not import them again."""
        return self.folder / "containerd"

    @property
    def logs(self) -> Path:
        """Logs: kept until the next start, so that a failed run can be looked into."""
        return self.folder / "log"

    @property
    def pki(self) -> Path:
        return self.state / "pki"

    @property
    def etc(self) -> Path:
        return self.state / "etc"

    @property
    def ready(self) -> Path:
        """Written by the first process inside when all is up."""
        return self.state / "ready"

    @property
    def plan(self) -> Path:
        """What the first process inside needs to know: paths of programs and images."""
        return self.state / "plan.json"

    @property
    def images(self) -> Path:
        """Names of the images that were loaded into this bed."""
        return self.state / "images.json"

    @property
    def record(self) -> Path:
        """What taking the bed down needs to know."""
        return self.folder / "bed.json"

    @property
    def kubeconfig(self) -> Path:
        return self.config_of("admin")

    def config_of(self, name: str) -> Path:
        """Kubeconfig of a component."""
        return self.pki / f"{name}.kubeconfig"
