"""Configuration files of the node bed: pure functions from the layout to text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from testbed import kubeconfig
from testbed.node import layout
from testbed.node.layout import Layout


def kubelet(files: Layout) -> str:
    """Static CPU and memory managers under the topology policy that refuses what is not on one NUMA
    node, as docs/platform.md asks of nodes; cgroup v1 allowed.

    200m CPU and 512Mi are kept for the system, so that on two cores one exclusive core can be
    given to a Guaranteed pod. The memory manager insists that ``reservedMemory`` is the sum of
    the memory in ``kubeReserved`` and ``evictionHard``.
    """
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "containerRuntimeEndpoint": f"unix://{layout.CONTAINERD_SOCKET}",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{files.pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{files.pki}/kubelet-server.crt",
        "tlsPrivateKeyFile": f"{files.pki}/kubelet-server.key",
        "clusterDomain": "cluster.local",
        "clusterDNS": [layout.ADDRESS],
        "resolvConf": f"{files.etc}/resolv.upstream",
        "cpuManagerPolicy": "static",
        "topologyManagerPolicy": "single-numa-node",
        "memoryManagerPolicy": "Static",
        "kubeReserved": {"cpu": "200m", "memory": "412Mi"},
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1Gi",
            "imagefs.available": "1Gi",
            "nodefs.inodesFree": "1%",
        },
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "512Mi"}}],
        # Images came from archives: one that is collected cannot be pulled again.
        "imageGCHighThresholdPercent": 100,
        "maxPods": 60,
        "serializeImagePulls": False,
        "syncFrequency": "10s",
        "nodeStatusUpdateFrequency": "5s",
        "volumePluginDir": f"{files.state}/volumeplugins",
    }
    return json.dumps(config, indent=1)


def containerd(files: Layout) -> str:
    """containerd with its images in the cache and everything else in the private /run."""
    unused = [f"io.containerd.snapshotter.v1.{name}" for name in ("btrfs", "zfs", "aufs")]
    unused += ["io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.opt"]
    return f"""\
version = 2
root = "{files.containerd}"
state = "/run/containerd"
oom_score = -999
disabled_plugins = {json.dumps(unused)}

[grpc]
  address = "{layout.CONTAINERD_SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{layout.PAUSE_IMAGE}"
  disable_apparmor = true
  # Root in a container or a small VM may lack CAP_SYS_RESOURCE, and runc then fails to lower
  # the score of the sandbox with "can't get final child's PID from pipe".
  restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "{files.etc}/cni"
"""


def cni() -> str:
    """A bridge without masquerading: pods reach each other and the node, and nothing else."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": layout.POD_CIDR}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    plugins = [bridge, ports]
    return json.dumps({"cniVersion": "1.0.0", "name": "testbed", "plugins": plugins}, indent=1)


def kube_proxy(files: Layout) -> str:
    """nftables mode; the conntrack limits are read-only in a network namespace, so left alone."""
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(files.config_of("kube-proxy"))},
        "clusterCIDR": layout.POD_CIDR,
        "hostnameOverride": layout.NODE,
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
        "nftables": {"minSyncPeriod": "100ms"},
    }
    return json.dumps(config, indent=1)


def corefile(files: Layout) -> str:
    """Cluster names only: there is no upstream to forward to."""
    return f"""\
.:53 {{
    bind {layout.ADDRESS}
    errors
    ready 127.0.0.1:10261
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {files.config_of("coredns")} {kubeconfig.CONTEXT}
        ttl 5
    }}
    cache 5
}}
"""


def resolv_conf() -> str:
    """What a process started inside sees: the names that a pod in ``default`` sees."""
    return (
        f"nameserver {layout.ADDRESS}\n"
        "search default.svc.cluster.local svc.cluster.local cluster.local\n"
        "options ndots:5\n"
    )


def bootstrap() -> dict[str, Any]:
    """Rights of CoreDNS, which has a certificate and no service account."""
    name = "testbed:coredns"
    group = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"]},
    ]
    role = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [{**rule, "verbs": ["list", "watch"]} for rule in rules],
    }
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "User", "name": name, "apiGroup": group}],
    }
    return {"apiVersion": "v1", "kind": "List", "items": [role, binding]}


def write(files: Layout) -> None:
    """Write all of them, and the kubeconfigs."""
    for name in layout.CLIENTS:
        user = kubeconfig.for_certificate(layout.SERVER, files.pki, name)
        kubeconfig.write(files.config_of(name), user)
    texts: dict[Path, str] = {
        files.etc / "kubelet.yaml": kubelet(files),
        files.etc / "containerd.toml": containerd(files),
        files.etc / "cni" / "10-testbed.conflist": cni(),
        files.etc / "kube-proxy.yaml": kube_proxy(files),
        files.etc / "Corefile": corefile(files),
        files.etc / "resolv.conf": resolv_conf(),
        files.etc / "resolv.upstream": "",
        files.etc / "bootstrap.json": json.dumps(bootstrap()),
    }
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
