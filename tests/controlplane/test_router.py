"""The real vllm-router, with the arguments and the rights that the operator gives it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from testbed import processes, wait
from testbed.controlplane.bed import free_ports
from tests.controlplane.world import SECONDS, Manifest, World, spec

pytestmark = pytest.mark.usefixtures("operator")


def discovered(world: World, log: Path) -> set[tuple[str, str]]:
    """Role and pod name of every pod that the router finds before the deadline for two."""
    deployment = world.get("deployment", f"chat-{world.status('chat')['revision']}-router")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    port, metrics = free_ports(2)
    # The last of two equal flags counts.
    ports = [f"--port={port}", f"--prometheus-port={metrics}"]
    router = processes.spawn(
        "router",
        [Path(sys.executable).parent / "vllm-router", *container["args"], *ports],
        log,
        {
            **os.environ,
            "KUBECONFIG": str(world.plane.kubeconfig_for("chat-router", world.namespace)),
        },
    )
    found = re.compile(r"Adding pod: (\S+) .*?type: Some\((\w+)\)")

    def pods() -> set[tuple[str, str]]:
        text = re.sub(r"\x1b\[[0-9;]*m", "", log.read_text())
        return {(kind, name) for name, kind in found.findall(text)}

    try:
        wait.until(lambda: len(pods()) >= 2, "discovery of two pods", SECONDS)
        return pods()
    finally:
        processes.stop(router)


def name(pods: list[Manifest]) -> str:
    (pod,) = pods
    return str(pod["metadata"]["name"])


def test_it_finds_the_pods_of_both_roles_and_no_others(world: World, tmp_path: Path) -> None:
    world.apply("other", spec())
    world.apply("chat", spec())
    world.until_ready("other")
    world.until_ready("chat")
    assert discovered(world, tmp_path / "log") == {
        ("Prefill", name(world.pods("chat", "prefill"))),
        ("Decode", name(world.pods("chat", "decode"))),
    }
