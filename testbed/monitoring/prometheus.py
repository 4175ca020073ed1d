"""Start Prometheus inside the node bed."""

from __future__ import annotations

import shutil
from pathlib import Path

from testbed import processes, programs, wait
from testbed.monitoring import manifests
from testbed.node.bed import Node
from testbed.problem import Problem

CONFIG = Path(__file__).parent / "prometheus.yml"
RULES = Path(__file__).parents[2] / "charts" / "oasiskv" / "rules"
TOKEN_LIFETIME = "24h"


def up(node: Node) -> None:
    """Start Prometheus, or do nothing when it answers; it ends with the node."""
    found = programs.find(["prometheus", "promtool"])
    promtool = str(found["promtool"])
    if _ready(node, promtool):
        return
    node.run("kubectl", "apply", "-f", "-", manifest=manifests.everything())
    folder = _write_config(node)
    log = node.files.logs / f"{manifests.NAME}.log"
    command = node.command(
        [
            str(found["prometheus"]),
            f"--config.file={folder / CONFIG.name}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=0.0.0.0:{manifests.PORT}",
            "--log.level=warn",
        ]
    )
    nsenter = shutil.which(command[0])
    if nsenter is None:
        raise Problem("nsenter is not installed; run `python3 -m testbed packages node`")
    started = processes.spawn(manifests.NAME, [nsenter, *command[1:]], log)

    def alive() -> None:
        processes.require_running([started], node.files.logs)

    wait.until(lambda: _ready(node, promtool), "Prometheus' readiness", 30, alive)


def _ready(node: Node, promtool: str) -> bool:
    try:
        node.run(promtool, "check", "ready", f"--url=http://127.0.0.1:{manifests.PORT}")
    except Problem:
        return False
    return True


def _write_config(node: Node) -> Path:
    folder = node.files.state / manifests.NAME
    folder.mkdir(exist_ok=True)
    account = ["-n", manifests.NAMESPACE, "create", "token", manifests.NAME]
    token = node.run("kubectl", *account, f"--duration={TOKEN_LIFETIME}")
    (folder / "token").write_text(token.strip())
    shutil.copy(node.files.pki / "ca.crt", folder / "ca.crt")
    shutil.copy(CONFIG, folder / CONFIG.name)
    shutil.copytree(RULES, folder / RULES.name, dirs_exist_ok=True)
    return folder
