"""Commands of ``python3 -m testbed``."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
from collections.abc import Sequence

from testbed import cache, demo, environment, host, model, packages, programs, progress, versions
from testbed.controlplane import bed as controlplane
from testbed.images import build as build_images
from testbed.monitoring import manifests, prometheus
from testbed.node.bed import Node
from testbed.problem import Problem

INTERRUPTED = 128 + signal.SIGINT


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python3 -m testbed", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    build = commands.add_parser("build", help="build programs from the Go module proxy")
    build.add_argument("modules", nargs="+", metavar="MODULE")
    build.set_defaults(run=lambda options: programs.build_all(programs.named(options.modules)))

    install = commands.add_parser("packages", help="install Debian packages that are missing")
    install.add_argument("purposes", nargs="*", choices=[[], *packages.PURPOSES])
    install.set_defaults(
        run=lambda options: packages.install(options.purposes or packages.PURPOSES)
    )
    venv = commands.add_parser("venv", help="make the Python environment; prints its folder")
    venv.set_defaults(run=make_environment)

    small = commands.add_parser("model", help="make the test model; prints its folder")
    small.add_argument(
        "--offer", action="store_true", help="have it on the node instead; prints its path there"
    )
    small.set_defaults(run=make_model)

    show = commands.add_parser("demo", help="the whole of it: ends with a question answered")
    show.set_defaults(run=lambda options: demo.demo())  # noqa: ARG005

    control_plane_commands(commands.add_parser("control-plane", help="control plane, fake nodes"))
    node_commands(commands)
    return top


def make_environment(options: argparse.Namespace) -> None:  # noqa: ARG001
    """Make the environment, with this checkout installed in it."""
    packages.install(["python"])
    folder = environment.make()
    environment.link(folder)
    print(folder)


def make_model(options: argparse.Namespace) -> None:
    """Make the model, and offer it to pods of the node bed if asked to."""
    packages.install(["python"])
    folder = model.make()
    print(Node.default().offer_model(folder, versions.MODEL_NAME) if options.offer else folder)


def node_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """``up``, ``down`` and ``exec``."""
    up = commands.add_parser("up", help="start the one-node cluster, or reuse the one that runs")
    up.set_defaults(run=node_up)

    down = commands.add_parser("down", help="stop it, leaving nothing behind on the host")
    down.add_argument(
        "--purge", action="store_true", help="remove its imported images and logs too"
    )
    down.set_defaults(run=node_down)

    images = commands.add_parser("images", help="build the project's images; prints their names")
    images.add_argument("--load", action="store_true", help="and import them into the node")
    images.add_argument("names", nargs="*", choices=[[], *build_images.NAMES])
    images.set_defaults(run=node_images)

    scrape = commands.add_parser("prometheus", help="start Prometheus inside; prints its address")
    scrape.set_defaults(run=node_prometheus)

    run = commands.add_parser("exec", help="run a command inside it")
    run.add_argument("program", nargs=argparse.REMAINDER)
    run.set_defaults(run=node_exec)


def node_up(options: argparse.Namespace) -> None:  # noqa: ARG001
    """Start the node bed."""
    host.require_root()
    packages.install(["node"])
    with progress.step("node"):
        Node.default().up()


def node_down(options: argparse.Namespace) -> None:
    """Stop the node bed."""
    node = Node.default()
    if options.purge:
        node.purge()
    else:
        node.down()


def node_images(options: argparse.Namespace) -> None:
    """Build images; prints one line ``NAME IMAGE`` for each."""
    host.require_root()
    packages.install(["images", "python"])
    for name in options.names or build_images.NAMES:
        image = build_images.build(name)
        if options.load:
            with progress.step(f"importing {image.name}"):
                Node.default().load(image.name, image.layout)
        print(name, image.name, flush=True)


def node_prometheus(options: argparse.Namespace) -> None:  # noqa: ARG001
    """Start Prometheus in the node bed."""
    with progress.step("Prometheus"):
        prometheus.up(Node.default())
    print(manifests.URL)


def node_exec(options: argparse.Namespace) -> None:
    """Become a command inside."""
    node = Node.default()
    become(node.command(spoken(options.program)), node.environment())


def control_plane_commands(command: argparse.ArgumentParser) -> None:
    """``control-plane up|down|exec``."""
    command.add_argument("--name", default="default", help="several beds can run side by side")
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")

    up = actions.add_parser("up", help="start it, or reuse the one that runs")
    up.add_argument("--fake-nodes", type=int, default=0, metavar="N", help="with KWOK's nodes")
    up.set_defaults(run=control_plane_up)

    down = actions.add_parser("down", help="stop it and remove its data")
    down.set_defaults(run=control_plane_down)

    run = actions.add_parser("exec", help="run a command with KUBECONFIG and kubectl set up")
    run.add_argument("program", nargs=argparse.REMAINDER)
    run.set_defaults(run=control_plane_exec)


def control_plane_up(options: argparse.Namespace) -> None:
    """Start a control plane that stays; prints how to use it."""
    packages.install(["control-plane"])
    folder = controlplane.named_folder(options.name)
    with progress.step("control plane"):
        bed = controlplane.up(folder, kwok=options.fake_nodes > 0)
        if options.fake_nodes:
            bed.add_fake_nodes(options.fake_nodes)
    print(f"export KUBECONFIG={bed.kubeconfig} PATH={bed.kubectl_path.parent}:$PATH")


def control_plane_down(options: argparse.Namespace) -> None:
    """Stop a control plane; nothing to do is fine."""
    bed = controlplane.load(controlplane.named_folder(options.name))
    if bed is not None:
        bed.stop()


def control_plane_exec(options: argparse.Namespace) -> None:
    """Become the given command, with the bed's environment."""
    bed = controlplane.load(controlplane.named_folder(options.name))
    if bed is None or not bed.running():
        raise Problem("no control plane is up; run `python3 -m testbed control-plane up`")
    become(spoken(options.program), bed.environment())


def spoken(words: list[str]) -> list[str]:
    """The command in what follows ``exec``: without the ``--`` that keeps its flags apart."""
    command = words[1:] if words[:1] == ["--"] else words
    if not command:
        raise Problem("exec needs a command, such as `exec -- kubectl get nodes`")
    return command


def become(command: list[str], environment: dict[str, str]) -> None:
    """Replace this process by ``command``."""
    os.execvpe(command[0], command, environment)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; a Problem becomes its sentence on stderr and status 1.

    An interruption ends the process at once, with the status of SIGINT: builds in other threads
    would be waited for. What they had begun is begun anew by the next run.
    """
    options = parser().parse_args(arguments)
    try:
        options.run(options)
    except Problem as problem:
        # Above its sentence there may be the end of a log.
        *log, sentence = str(problem).splitlines()
        print(*log, f"testbed: {sentence}", sep="\n", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        again = "what was finished is kept; run it again to go on"
        print(f"testbed: interrupted; {again}", file=sys.stderr, flush=True)
        os._exit(INTERRUPTED)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            said = progress.disk_full()
        elif cache.owns(error.filename):
            said = (
                f"cannot use {error.filename}: {error.strerror}; set OASISKV_CACHE to a folder "
                "where you may write, or run it as the user whose cache that is"
            )
        else:
            raise
        print(f"testbed: {said}", file=sys.stderr)
        return 1
    return 0
