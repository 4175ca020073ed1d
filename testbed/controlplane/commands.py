"""Command lines of the control-plane bed: pure functions of the ports and folders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from testbed.pki import Certificate

SERVICE_CIDR = "10.96.0.0/16"
API_SERVICE_ADDRESS = "10.96.0.1"
FAKE_POD_CIDR = "10.128.0.0/14"
"""Addresses of KWOK's pods; nothing answers there."""
FAKE_NODE_ANNOTATION = "kwok.x-k8s.io/node=fake"

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
        addresses=("127.0.0.1", API_SERVICE_ADDRESS),
    ),
    Certificate("admin", "admin", organization="system:masters"),
    Certificate("kcm", "system:kube-controller-manager"),
    Certificate("scheduler", "system:kube-scheduler"),
    Certificate("kwok", "kwok", organization="system:masters"),
    Certificate("front-proxy", "front-proxy"),
)


@dataclass(frozen=True)
class Ports:
    """Loopback ports of the programs."""

    etcd: int
    etcd_peer: int
    apiserver: int
    kcm: int
    scheduler: int
    kwok: int


@dataclass(frozen=True)
class Layout:
    """Files of one bed."""

    folder: Path

    @property
    def pki(self) -> Path:
        return self.folder / "pki"

    @property
    def logs(self) -> Path:
        return self.folder / "log"

    @property
    def audit_log(self) -> Path:
        return self.logs / "audit.log"

    @property
    def kubeconfig(self) -> Path:
        return self.config_of("admin")

    def config_of(self, name: str) -> Path:
        """Kubeconfig of a component."""
        return self.pki / f"{name}.kubeconfig"


def etcd(data: Path, ports: Ports) -> list[str]:
    """etcd without fsync: the data lives on tmpfs and dies with the bed."""
    client = f"http://127.0.0.1:{ports.etcd}"
    peer = f"http://127.0.0.1:{ports.etcd_peer}"
    return [
        "--name=testbed",
        f"--data-dir={data}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=testbed={peer}",
        "--logger=zap",
        "--log-level=warn",
    ]


def apiserver(pki: Path, *, etcd_port: int, port: int, address: str) -> list[str]:
    """The API server on ``address``, with authorization, service accounts and aggregation.

    The ``requestheader`` flags are needed even without aggregated APIs: the controller manager
    and the scheduler refuse to start without the CA bundle that they publish.
    """
    return [
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        f"--bind-address={address}",
        f"--secure-port={port}",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--client-ca-file={pki}/ca.crt",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki}/sa.pub",
        f"--service-account-signing-key-file={pki}/sa.key",
        f"--requestheader-client-ca-file={pki}/ca.crt",
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki}/front-proxy.crt",
        f"--proxy-client-key-file={pki}/front-proxy.key",
    ]


def audit(policy: Path, log: Path) -> list[str]:
    """More flags of the API server: each line of ``log`` is there before the answer is."""
    return [
        f"--audit-policy-file={policy}",
        f"--audit-log-path={log}",
        "--audit-log-mode=blocking-strict",
    ]


def controller_manager(pki: Path, config: Path, port: int) -> list[str]:
    """The controller manager; its client is allowed more than the default 20 requests a second."""
    return [
        *_authenticated(config, port),
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={pki}/sa.key",
        f"--root-ca-file={pki}/ca.crt",
        f"--cluster-signing-cert-file={pki}/ca.crt",
        f"--cluster-signing-key-file={pki}/ca.key",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        # Fake nodes send no heartbeat: by default they and their pods would be taken for dead
        # for a moment in every minute.
        "--node-monitor-grace-period=24h",
        # 15 s by default, which every test of an autoscaler would wait for.
        "--horizontal-pod-autoscaler-sync-period=1s",
    ]


def scheduler(config: Path, port: int) -> list[str]:
    """The scheduler."""
    return _authenticated(config, port)


def _authenticated(config: Path, port: int) -> list[str]:
    return [
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--leader-elect=false",
        "--kube-api-qps=300",
        "--kube-api-burst=400",
    ]


def kwok(config: Path, stages: Path, port: int) -> list[str]:
    """KWOK, which plays the kubelet of nodes that carry its annotation."""
    return [
        f"--kubeconfig={config}",
        f"--config={stages}",
        "--manage-all-nodes=false",
        f"--manage-nodes-with-annotation-selector={FAKE_NODE_ANNOTATION}",
        f"--cidr={FAKE_POD_CIDR}",
        "--node-ip=127.0.0.1",
        f"--server-address=127.0.0.1:{port}",
    ]
