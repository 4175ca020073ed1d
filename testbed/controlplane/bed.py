"""Start, find again and stop the control-plane bed."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import urllib.parse
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from testbed import cache, commandenv, kubeconfig, pki, processes, programs, wait
from testbed.controlplane import commands, fakenodes
from testbed.controlplane.commands import Layout, Ports
from testbed.problem import Problem
from testbed.processes import Process

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
STAGES = Path(__file__).parent / "stages.yaml"
AUDIT_POLICY = Path(__file__).parent / "audit-policy.yaml"
TMPFS = Path("/dev/shm")
STATE = "bed.json"


@dataclass(frozen=True)
class ControlPlane:
    """A running control plane.

    ``owner`` is the process it was started for; None means that it stays until it is taken down.
    """

    folder: Path
    server: str
    kubectl_path: Path
    processes: tuple[Process, ...]
    owner: Process | None

    @property
    def layout(self) -> Layout:
        return Layout(self.folder)

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig with all rights."""
        return self.layout.kubeconfig

    def running(self) -> bool:
        """Whether every program of the bed still runs."""
        return all(process.running() for process in self.processes)

    def environment(self) -> dict[str, str]:
        """Environment for commands that use the bed."""
        return commandenv.with_tools(self.kubeconfig)

    def kubectl(self, *arguments: str, manifest: object | None = None) -> str:
        """Run kubectl with all rights and return what it prints.

        ``manifest`` is sent to its standard input as JSON (``kubectl("apply", "-f", "-")``).
        Raises Problem with kubectl's words when it fails.
        """
        done = subprocess.run(
            [str(self.kubectl_path), *arguments],
            input=None if manifest is None else json.dumps(manifest),
            capture_output=True,
            text=True,
            env=self.environment(),
        )
        if done.returncode != 0:
            raise Problem(f"kubectl {' '.join(arguments)} failed: {done.stderr.strip()}")
        return done.stdout

    def kubeconfig_for(self, service_account: str, namespace: str, server: str = "") -> Path:
        """Kubeconfig with the rights of a service account that exists, good for an hour.

        ``server``: URL of a proxy to go through, if any.
        """
        token = self.kubectl("-n", namespace, "create", "token", service_account).strip()
        url = server or self.server
        port = urllib.parse.urlsplit(url).port
        return kubeconfig.write(
            self.layout.pki / f"{namespace}.{service_account}.{port}.kubeconfig",
            kubeconfig.for_token(url, self.layout.pki / "ca.crt", token, namespace),
        )

    def add_fake_nodes(self, count: int) -> None:
        """Create ``count`` nodes and wait until KWOK has made them Ready."""
        self.kubectl("apply", "-f", "-", manifest=fakenodes.fake_nodes(count))
        names = [f"node/fake-{number}" for number in range(count)]
        self.kubectl("wait", "--for=condition=Ready", "--timeout=60s", *names)

    def stop_programs(self) -> None:
        """End all programs, in the reverse order of their start.

        The API server hangs at its end when etcd is gone before it.
        """
        for process in reversed(self.processes):
            processes.stop(process)

    def stop(self) -> None:
        """End all programs and remove the folder."""
        self.stop_programs()
        shutil.rmtree(self.folder, ignore_errors=True)

    def save(self) -> None:
        """Write what :func:`load` needs."""
        state = asdict(self)
        state["folder"] = str(self.folder)
        state["kubectl_path"] = str(self.kubectl_path)
        (self.folder / STATE).write_text(json.dumps(state))


def load(folder: Path) -> ControlPlane | None:
    """The bed in ``folder``, running or not; None when there is none."""
    try:
        state = json.loads((folder / STATE).read_text())
    except FileNotFoundError:
        return None
    return ControlPlane(
        folder=folder,
        server=state["server"],
        kubectl_path=Path(state["kubectl_path"]),
        processes=tuple(Process(**process) for process in state["processes"]),
        owner=None if state["owner"] is None else Process(**state["owner"]),
    )


def parent_folder() -> Path:
    """Folder of this user's beds, on tmpfs where the machine has one."""
    base = TMPFS if TMPFS.is_dir() else Path("/tmp")
    return base / f"oasiskv-testbed-{os.getuid()}"


def named_folder(name: str) -> Path:
    """Folder of the bed with this name."""
    return parent_folder() / name


def sweep() -> None:
    """Take down beds whose owner is gone: what killed test runs left behind."""
    for state in parent_folder().glob(f"*/{STATE}"):
        bed = load(state.parent)
        if bed is not None and bed.owner is not None and not bed.owner.running():
            bed.stop()


def up(folder: Path, *, kwok: bool, owner: Process | None = None) -> ControlPlane:
    """Bring up a control plane in ``folder``, or give back the one that runs there.

    Raises Problem when a program ends or does not answer in time; nothing is left running then.
    """
    sweep()
    with cache.locked(folder.with_name(f".{folder.name}.lock")):
        bed = load(folder)
        if bed is not None:
            has_kwok = any(process.name == "kwok" for process in bed.processes)
            if bed.running() and (has_kwok or not kwok):
                return bed
            bed.stop()
        paths = programs.find([*PROGRAMS, *(["kwok"] if kwok else [])])
        shutil.rmtree(folder, ignore_errors=True)
        return _Start(Layout(folder), paths, owner).run(kwok)


class _Start:
    """One bring-up: the programs in their order, each after what it needs."""

    def __init__(self, layout: Layout, paths: dict[str, Path], owner: Process | None) -> None:
        self.layout = layout
        self.paths = paths
        self.owner = owner
        self.ports = Ports(*free_ports(6))
        self.server = f"https://127.0.0.1:{self.ports.apiserver}"
        self.started: list[Process] = []

    def run(self, kwok: bool) -> ControlPlane:
        self.layout.folder.mkdir(parents=True, mode=0o700)
        self.layout.logs.mkdir()
        try:
            self._start_programs(kwok)
        except BaseException:
            self._bed().stop_programs()
            raise
        return self._bed()

    def _start_programs(self, kwok: bool) -> None:
        layout, ports = self.layout, self.ports
        data = layout.folder / "etcd"
        data.mkdir(mode=0o700)
        self._spawn("etcd", "etcd", commands.etcd(data, ports))
        pki.write(layout.pki, commands.CERTIFICATES)
        for name in ("admin", "kcm", "scheduler", "kwok"):
            config = kubeconfig.for_certificate(self.server, layout.pki, name)
            kubeconfig.write(layout.config_of(name), config)
        api = commands.apiserver(
            layout.pki, etcd_port=ports.etcd, port=ports.apiserver, address="127.0.0.1"
        )
        api += commands.audit(AUDIT_POLICY, layout.audit_log)
        self._spawn("apiserver", "kube-apiserver", api)
        self._until("the API server's readiness", self._api_ready, 60)
        # Earlier they would exit: the controller manager asks the API server at once.
        kcm = commands.controller_manager(layout.pki, layout.config_of("kcm"), ports.kcm)
        self._spawn("kcm", "kube-controller-manager", kcm)
        schedule = commands.scheduler(layout.config_of("scheduler"), ports.scheduler)
        self._spawn("scheduler", "kube-scheduler", schedule)
        if kwok:
            fake = commands.kwok(layout.config_of("kwok"), STAGES, ports.kwok)
            self._spawn("kwok", "kwok", fake)
        self._until("the scheduler's readiness", lambda: self._healthy(ports.scheduler), 30)
        self._until("the controller manager's health", lambda: self._healthy(ports.kcm), 30)
        self._until("the default service account", self._service_account, 30)

    def _spawn(self, name: str, program: str, arguments: Sequence[str]) -> None:
        log = self.layout.logs / f"{name}.log"
        self.started.append(processes.spawn(name, [self.paths[program], *arguments], log))
        self._bed().save()

    def _bed(self) -> ControlPlane:
        return ControlPlane(
            folder=self.layout.folder,
            server=self.server,
            kubectl_path=self.paths["kubectl"],
            processes=tuple(self.started),
            owner=self.owner,
        )

    def _until(self, what: str, condition: Callable[[], bool], timeout: float) -> None:
        def alive() -> None:
            processes.require_running(self.started, self.layout.logs)

        wait.until(condition, what, timeout, alive)

    def _api(self, path: str) -> bool:
        folder = self.layout.pki
        client = (folder / "admin.crt", folder / "admin.key")
        return wait.answers(self.server + path, wait.trusting(folder / "ca.crt", client))

    def _api_ready(self) -> bool:
        return self._api("/readyz")

    def _service_account(self) -> bool:
        return self._api("/api/v1/namespaces/default/serviceaccounts/default")

    def _healthy(self, port: int) -> bool:
        return wait.answers(f"https://127.0.0.1:{port}/healthz", wait.unverified())


def free_ports(count: int) -> list[int]:
    """Different loopback ports that nothing listens on now."""
    with ExitStack() as stack:
        found = []
        for _ in range(count):
            listener = stack.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            found.append(int(listener.getsockname()[1]))
        return found
