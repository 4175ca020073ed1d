"""Command lines of the node bed's programs."""

from __future__ import annotations

from pathlib import Path

from testbed.controlplane import commands as control_plane
from testbed.controlplane.commands import Ports
from testbed.node import layout
from testbed.node.layout import Layout

ETCD_DATA = Path("/run/etcd")
"""On the private tmpfs inside: gone with the namespaces, and no disk to wait for."""
PORTS = Ports(
    etcd=2379, etcd_peer=2380, apiserver=layout.API_PORT, kcm=10257, scheduler=10259, kwok=0
)
"""The usual ports: they cannot collide with anything outside the namespaces."""


def etcd() -> list[str]:
    """etcd."""
    return control_plane.etcd(ETCD_DATA, PORTS)


def apiserver(files: Layout) -> list[str]:
    """The API server, reachable from pods, and able to reach the kubelet for logs and exec."""
    pki = files.pki
    return [
        *control_plane.apiserver(
            pki, etcd_port=PORTS.etcd, port=PORTS.apiserver, address="0.0.0.0"
        ),
        f"--advertise-address={layout.ADDRESS}",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        f"--kubelet-client-certificate={pki}/kubelet-client.crt",
        f"--kubelet-client-key={pki}/kubelet-client.key",
        "--kubelet-preferred-address-types=InternalIP",
    ]


def controller_manager(files: Layout) -> list[str]:
    """The controller manager."""
    return control_plane.controller_manager(files.pki, files.config_of("kcm"), PORTS.kcm)


def scheduler(files: Layout) -> list[str]:
    """The scheduler."""
    return control_plane.scheduler(files.config_of("scheduler"), PORTS.scheduler)


def kubelet(files: Layout) -> list[str]:
    """The kubelet."""
    return [
        f"--config={files.etc}/kubelet.yaml",
        f"--kubeconfig={files.config_of('kubelet')}",
        f"--hostname-override={layout.NODE}",
        f"--node-ip={layout.ADDRESS}",
        "--root-dir=/var/lib/kubelet",
        "--v=2",
    ]


def kube_proxy(files: Layout) -> list[str]:
    """kube-proxy."""
    return [f"--config={files.etc}/kube-proxy.yaml"]


def coredns(files: Layout) -> list[str]:
    """CoreDNS, a plain process on the node's address: DNS then needs no image."""
    return ["-conf", f"{files.etc}/Corefile"]


def containerd(files: Layout) -> list[str]:
    """containerd."""
    return ["--config", f"{files.etc}/containerd.toml"]
