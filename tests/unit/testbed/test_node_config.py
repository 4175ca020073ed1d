"""Configuration files of the node bed."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from testbed.controlplane import commands as control_plane
from testbed.node import commands, config, layout, network
from testbed.node.layout import Layout

FILES = Layout(Path("/bed"))


def mebibytes(quantity: str) -> int:
    assert quantity.endswith("Mi")
    return int(quantity[:-2])


def test_the_memory_managers_reservation_is_the_sum_that_the_kubelet_demands() -> None:
    kubelet = json.loads(config.kubelet(FILES))
    reserved = mebibytes(kubelet["reservedMemory"][0]["limits"]["memory"])
    kube = mebibytes(kubelet["kubeReserved"]["memory"])
    eviction = mebibytes(kubelet["evictionHard"]["memory.available"])
    assert reserved == kube + eviction


def test_the_kubelet_gives_out_exclusive_cores_and_accepts_cgroup_v1() -> None:
    kubelet = json.loads(config.kubelet(FILES))
    assert kubelet["cpuManagerPolicy"] == "static"
    assert kubelet["failCgroupV1"] is False


def test_containerd_reads_its_file_and_keeps_images_outside_the_state_that_is_removed() -> None:
    parsed = tomllib.loads(config.containerd(FILES))
    assert parsed["root"] == "/bed/containerd"
    assert not Path(parsed["root"]).is_relative_to(FILES.state)
    cri = parsed["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["sandbox_image"] == layout.PAUSE_IMAGE
    assert cri["restrict_oom_score_adj"] is True
    runtime = cri["containerd"]["runtimes"]["runc"]["options"]
    assert runtime["SystemdCgroup"] is False


def test_pods_get_no_way_out() -> None:
    bridge = json.loads(config.cni())["plugins"][0]
    assert bridge["ipMasq"] is False
    assert not any("default" in command for command in network.addresses())


def test_services_have_a_route_inside() -> None:
    assert ["ip", "route", "add", control_plane.SERVICE_CIDR, "dev", "node0"] in network.addresses()


def test_folders_of_the_host_that_the_runtime_writes_are_covered_before_they_are_shared() -> None:
    mounts = network.mounts(FILES)
    shared = mounts.index(["mount", "--make-rshared", "/"])
    for folder in (*network.PRIVATE_FOLDERS, "/run"):
        covering = [number for number, command in enumerate(mounts) if command[-1] == folder]
        assert covering
        assert max(covering) < shared


def test_the_api_server_can_read_logs_from_the_kubelet() -> None:
    flags = commands.apiserver(FILES)
    assert "--kubelet-certificate-authority=/bed/state/pki/ca.crt" in flags
    assert "--bind-address=0.0.0.0" in flags


def test_dns_and_resolver_agree_on_the_address() -> None:
    assert f"bind {layout.ADDRESS}" in config.corefile(FILES)
    assert f"nameserver {layout.ADDRESS}" in config.resolv_conf()


def test_coredns_may_read_what_it_serves_and_nothing_else() -> None:
    role = config.bootstrap()["items"][0]
    resources = {name for rule in role["rules"] for name in rule["resources"]}
    assert resources == {"services", "pods", "namespaces", "endpointslices"}
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"list", "watch"}
