"""First process of the namespaces: brings everything up, then reaps what is orphaned.

Started by ``testbed.node.bed`` as ``python3 -m testbed.node.inside FOLDER``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from testbed import processes, progress, wait
from testbed.node import commands, layout, network
from testbed.node.layout import Layout
from testbed.problem import Problem
from testbed.processes import Process

PROGRAMS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
    "coredns",
    "containerd",
)
COREDNS_READY = "http://127.0.0.1:10261/ready"


@dataclass(frozen=True)
class Plan:
    """What the outside has found or made before the start."""

    programs: dict[str, str]
    pause_archive: str

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @staticmethod
    def read(path: Path) -> Plan:
        return Plan(**json.loads(path.read_text()))


class Inside:
    """The bring-up, each program after what it needs."""

    def __init__(self, files: Layout, plan: Plan) -> None:
        self.files = files
        self.plan = plan
        self.started: list[Process] = []
        self.since = time.monotonic()

    def run(self) -> None:
        """Bring up; returns when the node is Ready and DNS answers."""
        files = self.files
        for command in network.mounts(files) + network.addresses():
            subprocess.run(command, check=True)
        for folder in (commands.ETCD_DATA, Path("/run/lock"), Path("/run/containerd")):
            folder.mkdir(mode=0o700)
        self._spawn("etcd", "etcd", commands.etcd())
        self._spawn("containerd", "containerd", commands.containerd(files))
        self._spawn("apiserver", "kube-apiserver", commands.apiserver(files))
        self._until("containerd answers", self._containerd_answers, 60)
        self._import_pause()
        self._until("API server ready", lambda: self._api("/readyz"), 90)
        self._kubectl("apply", "-f", f"{files.etc}/bootstrap.json")
        self._spawn("kcm", "kube-controller-manager", commands.controller_manager(files))
        self._spawn("scheduler", "kube-scheduler", commands.scheduler(files))
        self._spawn("kubelet", "kubelet", commands.kubelet(files))
        self._spawn("kube-proxy", "kube-proxy", commands.kube_proxy(files))
        self._spawn("coredns", "coredns", commands.coredns(files))
        self._until("node Ready", self._node_ready, 90)
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self._until("default service account", lambda: self._api(account), 60)
        self._until("DNS ready", lambda: wait.answers(COREDNS_READY), 60)

    def _spawn(self, name: str, program: str, arguments: Sequence[str]) -> None:
        log = self.files.logs / f"{name}.log"
        self.started.append(processes.spawn(name, [self.plan.programs[program], *arguments], log))

    def _until(self, what: str, condition: Callable[[], bool], timeout: float) -> None:
        def alive() -> None:
            processes.require_running(self.started, self.files.logs)

        wait.until(condition, what, timeout, alive)
        progress.say(f"    {progress.seconds(time.monotonic() - self.since):>7}  {what}")

    def _containerd_answers(self) -> bool:
        # Through the socket: the file is there before the service is.
        return subprocess.run(_ctr("version"), capture_output=True).returncode == 0

    def _import_pause(self) -> None:
        images = subprocess.run(_ctr("images", "ls", "-q"), capture_output=True, text=True).stdout
        if layout.PAUSE_IMAGE not in images.split():
            archive = self.plan.pause_archive
            subprocess.run(_ctr("images", "import", archive), check=True, capture_output=True)

    def _api(self, path: str) -> bool:
        folder = self.files.pki
        client = (folder / "admin.crt", folder / "admin.key")
        return wait.answers(layout.SERVER + path, wait.trusting(folder / "ca.crt", client))

    def _node_ready(self) -> bool:
        status = '{.status.conditions[?(@.type=="Ready")].status}'
        return self._kubectl("get", "node", layout.NODE, "-o", f"jsonpath={status}") == "True"

    def _kubectl(self, *arguments: str) -> str:
        kubectl = self.plan.programs["kubectl"]
        command = [kubectl, f"--kubeconfig={self.files.kubeconfig}", *arguments]
        return subprocess.run(command, capture_output=True, text=True).stdout


def _ctr(*arguments: str) -> list[str]:
    address = f"--address={layout.CONTAINERD_SOCKET}"
    return ["ctr", address, f"--namespace={layout.CONTAINERD_NAMESPACE}", *arguments]


def reap_forever() -> None:
    """Collect children for as long as the namespaces live; they end by SIGKILL from outside."""
    while True:
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(1)


def main(folder: Path) -> int:
    """Bring up, report through the ``ready`` file, stay."""
    files = Layout(folder)
    try:
        Inside(files, Plan.read(files.plan)).run()
    except (Problem, subprocess.CalledProcessError) as failure:
        progress.say(f"{failure}")
        return 1
    files.ready.touch()
    reap_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
