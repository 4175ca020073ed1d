"""``make demo``: from nothing to a question answered by an OasisDeployment."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed import cache, environment, host, model, packages, programs, progress, room, versions
from testbed import wait as waiting
from testbed.images import build as build_images
from testbed.images import engine
from testbed.monitoring import manifests, prometheus
from testbed.node.bed import Node
from testbed.node.cluster import IMAGE_PREFIX, KUBECONFIG
from testbed.problem import Problem

CHECKOUT = environment.CHECKOUT
CHART = CHECKOUT / "charts" / "oasiskv"
EXAMPLE = CHECKOUT / "examples" / "demo.yaml"
CLIENT = CHECKOUT / "examples" / "ask.py"
RELEASE = "oasiskv"
SYSTEM = "oasiskv-system"
NAME, NAMESPACE = "demo", "default"
PROMETHEUS_VARIABLE = "PROMETHEUS_URL"
SMALL = f"{versions.MODEL_NAME} is small and may answer wrongly, densely as well as sparsely"
READY_SECONDS = 900.0
"""On two busy cores both engines take some two minutes."""
MODULES = ("kubernetes", "coredns", "prometheus", "helm")
HOPELESS = frozenset({"ConfigurationRejected", "InvalidSpec"})
"""Reasons of the condition Ready that no waiting mends."""


@dataclass(frozen=True)
class Place:
    """A cluster to show the demo on. ``prefix``: words that run a command where it is reached."""

    prefix: tuple[str, ...]
    variables: Mapping[str, str]
    images: Mapping[str, str]
    prometheus: str | None
    own: bool
    """The node bed, as opposed to a cluster of the user's."""

    def run(self, *words: str) -> str:
        """What a command prints; raises Problem with its words when it fails."""
        done = subprocess.run(
            [*self.prefix, *words], capture_output=True, text=True, env=dict(self.variables)
        )
        if done.returncode != 0:
            raise Problem(f"{' '.join(words[:6])} ... failed: {done.stderr.strip()}")
        return done.stdout

    def show(self, *words: str) -> None:
        """Run a command whose output the user sees; raises Problem when it fails."""
        done = subprocess.run([*self.prefix, *words], env=dict(self.variables))
        if done.returncode != 0:
            raise Problem(f"{' '.join(words[:3])} ended with status {done.returncode}")


def demo() -> None:
    """Set up, ask, and say how to look around; one run at a time.

    What is missing is said before anything long begins.
    """
    own = not os.environ.get(KUBECONFIG)
    if own:
        _require_machine()
    with cache.locked(cache.root() / ".demo.lock"):
        place = _own_node() if own else _users_cluster()
        _install(place)
        _deploy(place)
        _ask(place)
        print(_look_around(place), flush=True)


def _ask(place: Place) -> None:
    made = environment.made()
    python = environment.client() if made is None else environment.python(made)
    with _router(place) as url:
        words = [str(python), str(CLIENT), "--url", url, "--namespace", NAMESPACE, "--name", NAME]
        if place.prometheus is not None:
            words += ["--prometheus", place.prometheus]
        progress.say(f"--> the question; {SMALL}\n")
        place.show(*words)


def _require_machine() -> None:
    host.require_root()
    host.require_debian()
    if programs.ready(programs.named(MODULES)):
        programs.find(_programs())
    else:
        host.require_go()
    room.require(_room())


def _programs() -> list[str]:
    return [program for module in programs.named(MODULES) for program in module.programs]


def _own_node() -> Place:
    packages.install(["node", "images", "python"])
    programs.find(_programs())
    environment.link(environment.make())
    weights = model.make()
    images = {name: build_images.build(name) for name in build_images.NAMES}
    node = Node.default()
    with progress.step("the node"):
        node.up()
    for image in images.values():
        with progress.step(f"importing {image.name}"):
            node.load(image.name, image.layout)
    node.offer_model(weights, versions.MODEL_NAME)
    with progress.step("Prometheus"):
        prometheus.up(node)
    return Place(
        prefix=tuple(node.command([])),
        variables=node.environment(),
        images={name: image.name for name, image in images.items()},
        prometheus=manifests.URL,
        own=True,
    )


def _room() -> list[room.Need]:
    """What a first run leaves on the disk, measured, with Go's and buildah's own caches."""
    base = cache.finished("images", engine.NAME, engine.key())
    weights = cache.finished("models", versions.MODEL_NAME, model.key())
    return [
        room.Need("building Kubernetes and others", 6, programs.ready(programs.named(MODULES))),
        room.Need("the Python environment", 4, environment.made() is not None),
        room.Need("the model", 0.5, weights is not None),
        room.Need("the images", 7, base is not None),
        room.Need("importing them", 6, Node.default().files.containerd.exists()),
        room.Need("the cluster", 0.5, Node.default().running()),
    ]


def _users_cluster() -> Place:
    """The cluster that KUBECONFIG names, and images that it can pull."""
    wanted = {name: f"{IMAGE_PREFIX}{name.upper()}" for name in build_images.NAMES}
    absent = [variable for variable in wanted.values() if not os.environ.get(variable)]
    if absent:
        raise Problem(
            f"KUBECONFIG is set, so the demo uses that cluster, which must be able to pull the "
            f"images: build images/*/Containerfile, push them, and set {', '.join(absent)}"
        )
    if shutil.which("kubectl") is None:
        raise Problem("KUBECONFIG is set, but there is no kubectl on PATH; install it")
    helm = shutil.which("helm") or _built_helm()
    path = os.pathsep.join([str(Path(helm).parent), os.environ.get("PATH", "")])
    place = Place(
        prefix=(),
        variables={**os.environ, "PATH": path},
        images={name: os.environ[variable] for name, variable in wanted.items()},
        prometheus=os.environ.get(PROMETHEUS_VARIABLE),
        own=False,
    )
    try:
        place.run("kubectl", "version", "--request-timeout=10s")
    except Problem as problem:
        raise Problem(
            f"KUBECONFIG is {os.environ[KUBECONFIG]} and its cluster does not answer: {problem}; "
            "correct it, or unset it for a cluster on this machine"
        ) from problem
    return place


def _built_helm() -> str:
    try:
        return str(programs.find(["helm"])["helm"])
    except Problem as problem:
        raise Problem(
            f"there is no helm on PATH; install it. It cannot be built: {problem}"
        ) from problem


def _install(place: Place) -> None:
    repository, _, tag = place.images["operator"].rpartition(":")
    values = {
        "image.repository": repository,
        "image.tag": tag,
        "runtime.image": place.images["runtime"],
        "router.image": place.images["router"],
        "prometheus.url": place.prometheus or "",
    }
    settings = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    with progress.step("helm install charts/oasiskv"):
        place.run(
            *("helm", "upgrade", "--install", RELEASE, str(CHART), "--namespace", SYSTEM),
            *("--create-namespace", "--wait", "--timeout", "5m", *settings),
        )


def _deploy(place: Place) -> None:
    place.run("kubectl", "apply", "-n", NAMESPACE, "-f", str(EXAMPLE))
    said = ""

    def ready() -> bool:
        nonlocal said
        found = json.loads(place.run("kubectl", "get", "odep", NAME, "-n", NAMESPACE, "-o", "json"))
        conditions = {c["type"]: c for c in found.get("status", {}).get("conditions", [])}
        current = conditions.get("Ready", {})
        text = f"{current.get('reason', 'Pending')}: {current.get('message', '')}"
        if text != said:
            said = text
            progress.say(f"    {text}")
        fresh = current.get("observedGeneration") == found["metadata"]["generation"]
        if fresh and current.get("reason") in HOPELESS:
            raise Problem(f"OasisDeployment {NAME} cannot become Ready")
        return bool(fresh and current.get("status") == "True")

    with progress.step(f"kubectl apply {EXAMPLE.relative_to(CHECKOUT)}"):
        try:
            waiting.until(ready, f"OasisDeployment {NAME} to be Ready", READY_SECONDS, every=1.0)
        except Problem as problem:
            raise Problem(
                f"{problem}; it says {said!r}. Look at `kubectl describe odep {NAME}` and at the "
                "logs of its pods"
            ) from problem


def _service(place: Place) -> tuple[str, int]:
    """Name and port of the router's Service."""
    text = place.run(
        "kubectl", "get", "odep", NAME, "-n", NAMESPACE, "-o", "jsonpath={.status.endpoint}"
    )
    host_name, _, port = text.removeprefix("http://").removesuffix("/v1").rpartition(":")
    return host_name.partition(".")[0], int(port)


@contextmanager
def _router(place: Place) -> Iterator[str]:
    """The address of the router's API from here."""
    name, port = _service(place)
    if place.own:
        yield f"http://{name}.{NAMESPACE}.svc.cluster.local:{port}/v1"
        return
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        local = chosen.getsockname()[1]
    command = ["kubectl", "port-forward", "-n", NAMESPACE, f"service/{name}", f"{local}:{port}"]
    forward = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(place.variables),
    )

    def alive() -> None:
        if forward.poll() is not None:
            _, said = forward.communicate()
            raise Problem(f"{' '.join(command)} ended: {said.strip()}")

    try:
        waiting.until(lambda: _listens(local), f"`{' '.join(command)}`", 30, alive)
        yield f"http://127.0.0.1:{local}/v1"
    finally:
        forward.terminate()
        forward.communicate()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _look_around(place: Place) -> str:
    name, port = _service(place)
    if not place.own:
        return f"""
Look around:   kubectl get odep
               kubectl describe odep {NAME}
               kubectl port-forward service/{name} {port}
Take it down:  kubectl delete odep {NAME} && helm uninstall {RELEASE} -n {SYSTEM}"""
    inside = "python3 -m testbed exec --"
    return f"""
The cluster stays up, in namespaces of its own; `{inside} COMMAND` runs a command in it.

Look around:   {inside} kubectl get odep
               {inside} kubectl describe odep {NAME}
               {inside} curl http://{name}.{NAMESPACE}:{port}/v1/models
               {inside} curl '{manifests.URL}/api/v1/query?query=oasis_pages_selected_total'
Take it down:  make demo-down"""
