"""Start, find again, use and stop the node bed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from testbed import cache, commandenv, pki, processes, programs, progress, wait
from testbed.images import oci, pause
from testbed.node import cluster, config, hoststate, inside, layout, network
from testbed.node.layout import Layout
from testbed.problem import Problem
from testbed.processes import Process

START_TIMEOUT = 180.0
"""Seconds for a loaded machine; an idle one needs nine."""


@dataclass(frozen=True)
class Record:
    """What taking the bed down needs to know, written before anything is changed."""

    sysctls: dict[str, str]
    made_folders: list[str]
    unshare: Process | None = None
    first: Process | None = None
    """The first process of the namespaces, as the host sees it."""

    def running(self) -> bool:
        return self.first is not None and self.first.running()

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @staticmethod
    def read(path: Path) -> Record | None:
        """The record of a bed that was started and not taken down, None without one."""
        try:
            state = json.loads(path.read_text())
        except FileNotFoundError:
            return None

        def process(name: str) -> Process | None:
            return None if state[name] is None else Process(**state[name])

        # By name: an earlier version of the test bed may have written more than these.
        return Record(state["sysctls"], state["made_folders"], process("unshare"), process("first"))


class Node:
    """The node bed of this cache."""

    def __init__(self, files: Layout) -> None:
        self.files = files

    @staticmethod
    def default() -> Node:
        return Node(Layout.default())

    def running(self) -> bool:
        """Whether the bed is up."""
        record = Record.read(self.files.record)
        return record is not None and record.running() and self.files.ready.exists()

    def up(self) -> None:
        """Bring it up; nothing to do when it is.

        Raises Problem with the end of the log when it does not come up; nothing runs then.
        """
        with cache.locked(self.files.folder / ".node.lock"):
            if self.running():
                return
            found = {name: str(path) for name, path in self._programs().items()}
            self._clean()
            if busy := hoststate.bed_cgroups():
                raise Problem(
                    f"{busy[0]} is there: another kubelet runs on this machine, and two cannot "
                    "share that control group; stop it, or use its cluster through KUBECONFIG"
                )
            self.files.folder.mkdir(parents=True, exist_ok=True)
            record = Record(hoststate.read_sysctls(), [])
            record.write(self.files.record)
            try:
                self._start(found, record)
            except BaseException:
                self._clean()
                raise

    def down(self) -> None:
        """Take it down; images and logs stay in the cache. Nothing to do is fine."""
        if self.files.folder.exists():
            with cache.locked(self.files.folder / ".node.lock"):
                self._clean()

    def purge(self) -> None:
        """Take it down and remove its images and logs too."""
        self.down()
        shutil.rmtree(self.files.folder, ignore_errors=True)

    def command(self, words: Sequence[str]) -> list[str]:
        """What to run outside so that ``words`` runs inside."""
        record = Record.read(self.files.record)
        if record is None or record.first is None or not self.running():
            raise Problem("no node is up; run `python3 -m testbed up`")
        target = f"--target={record.first.pid}"
        here = f"--wd={Path.cwd()}"
        return ["nsenter", target, "--mount", "--net", "--pid", here, "--", *words]

    def environment(self) -> dict[str, str]:
        """Environment of a command that runs inside."""
        return {
            **commandenv.with_tools(self.files.kubeconfig),
            "CONTAINERD_ADDRESS": layout.CONTAINERD_SOCKET,
            "CONTAINERD_NAMESPACE": layout.CONTAINERD_NAMESPACE,
            **cluster.variables(self.images()),
        }

    def run(self, *words: str, manifest: object | None = None) -> str:
        """Run a command inside and return what it prints.

        ``manifest`` goes to its standard input as JSON. Raises Problem with its words when it
        fails.
        """
        done = subprocess.run(
            self.command(words),
            input=None if manifest is None else json.dumps(manifest),
            capture_output=True,
            text=True,
            env=self.environment(),
        )
        if done.returncode != 0:
            raise Problem(f"{' '.join(words)} failed inside the node: {done.stderr.strip()}")
        return done.stdout

    def offer_model(self, folder: Path, name: str) -> str:
        """Have a model's folder on the node, read-only; returns its path there."""
        path = f"{network.MODELS_FOLDER}/models/{name}"
        if name not in self.run("cat", "/proc/self/mounts"):
            self.run("mkdir", "-p", path)
            self.run("mount", "--bind", "-o", "ro", str(folder.resolve()), path)
        return path

    def images(self) -> dict[str, str]:
        """Images that this bed was given, by the last word of their repository."""
        try:
            names: dict[str, str] = json.loads(self.files.images.read_text())
        except FileNotFoundError:
            return {}
        return names

    def load(self, image: str, source: Path) -> None:
        """Import an image layout into containerd as ``image``, if it is not there yet.

        Only blobs that containerd lacks are copied. Earlier images of the same repository lose
        their name; pods that run keep running.
        """
        names = self.images()
        names[image.rpartition(":")[0].rpartition("/")[2]] = image
        self.files.images.write_text(json.dumps(names))
        listing = self.run("ctr", "images", "ls")
        if image in stored_images(listing):
            return
        present = set(self.run("ctr", "content", "ls", "-q").split())
        command = self.command(["ctr", "images", "import", "-"])
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=self.environment()
        ) as process:
            if process.stdin is None:
                raise AssertionError("asked for a pipe")
            # A containerd that stops reading says why itself, and its status is judged below.
            with contextlib.suppress(BrokenPipeError):
                oci.write_tar(source, present, process.stdin)
                process.stdin.close()
        if process.returncode != 0:
            raise Problem(
                f"containerd did not take the image {image} from {source}; its words are above, "
                f"its log is {self.files.logs / 'containerd.log'}"
            )
        if stale := superseded(stored_images(listing), image):
            self.run("ctr", "images", "rm", *stale)

    def _programs(self) -> dict[str, Path]:
        built = [name for name in inside.PROGRAMS if name != "containerd"]
        containerd = shutil.which("containerd")
        if containerd is None:
            raise Problem("containerd is not installed; run `python3 -m testbed packages node`")
        return {**programs.find(built), "containerd": Path(containerd)}

    def _start(self, found: dict[str, str], record: Record) -> None:
        files = self.files
        archive = pause.archive()
        made = hoststate.make_folders(network.PRIVATE_FOLDERS)
        record = Record(record.sysctls, made)
        record.write(files.record)
        pki.write(files.pki, layout.CERTIFICATES)
        config.write(files)
        for folder in network.PRIVATE_FOLDERS:
            network.private_copy(files, folder).mkdir(parents=True)
        shutil.rmtree(files.logs, ignore_errors=True)
        files.logs.mkdir()
        inside.Plan(found, str(archive)).write(files.plan)
        log = files.logs / "init.log"
        unshare = processes.spawn("unshare", self._unshare(), log, env=self._inside_environment())
        wait.until(lambda: first_child(unshare.pid) is not None, "the first process inside", 10)
        child = first_child(unshare.pid)
        started = None if child is None else processes.start_time(child)
        if child is None or started is None:
            raise Problem(f"the bring-up ended at once:\n{progress.tail(log)}")
        first = Process("init", child, started)
        record = Record(record.sysctls, made, unshare, first)
        record.write(files.record)

        def alive() -> None:
            if not first.running():
                raise Problem(
                    f"{progress.tail(log, 40)}\nthe node did not come up; logs: {files.logs}"
                )

        wait.until(files.ready.exists, "the node", START_TIMEOUT, alive)
        progress.say(log.read_text().rstrip())

    def _unshare(self) -> list[str]:
        unshare = shutil.which("unshare")
        if unshare is None:
            raise Problem("unshare is not installed; run `python3 -m testbed packages node`")
        return [
            unshare,
            "--mount",
            "--net",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child=SIGKILL",
            sys.executable,
            "-m",
            "testbed.node.inside",
            str(self.files.folder),
        ]

    def _inside_environment(self) -> dict[str, str]:
        checkout = str(Path(__file__).resolve().parents[2])
        path = os.environ.get("PATH", "")
        return {
            "HOME": os.environ.get("HOME", "/root"),
            "PYTHONPATH": checkout,
            "PATH": os.pathsep.join([path, "/usr/local/sbin", "/usr/sbin", "/sbin"]),
        }

    def _clean(self) -> None:
        """Kill what runs, and put back what the namespaces do not contain."""
        record = Record.read(self.files.record)
        if record is None:
            return
        for process in (record.first, record.unshare):
            if process is not None:
                # SIGTERM means nothing to the first process of a namespace. With it go all
                # others in there, and with the last of them mounts, links and rules.
                processes.stop(process, grace=0.0)
        hoststate.restore_sysctls(record.sysctls)
        left = hoststate.remove_cgroups()
        hoststate.remove_folders(record.made_folders)
        shutil.rmtree(self.files.state, ignore_errors=True)
        if left:
            names = ", ".join(map(str, left))
            raise Problem(f"the bed is down, but these control groups would not go: {names}")
        self.files.record.unlink()


def first_child(pid: int) -> int | None:
    """Process id of the only child of ``pid``, None while it has none."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return None
    return int(children[0]) if children else None


def stored_images(listing: str) -> dict[str, str]:
    """Name to digest in what ``ctr images ls`` prints."""
    rows = (line.split() for line in listing.splitlines()[1:])
    return {row[0]: row[2] for row in rows if len(row) > 2}


def superseded(images: Mapping[str, str], image: str) -> list[str]:
    """Names to remove now that ``image`` is there: other tags of its repository.

    The kubelet's runtime also names each image by the digest of its configuration, and content
    stays for as long as it has any name, so those of the same digest go too.
    """
    repository = image.rpartition(":")[0]
    tags = {name for name in images if name != image and name.rpartition(":")[0] == repository}
    digests = {images[name] for name in tags} - {images.get(image)}
    hashes = {name for name in images if name.startswith("sha256:") and images[name] in digests}
    return sorted(tags | hashes)
