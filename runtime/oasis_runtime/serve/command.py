"""The command line of the engine, and the order in which things are checked."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from oasis_runtime.contract import EngineConfig
from oasis_runtime.serve.arguments import SERVER_MODULE, argument_problems, server_arguments
from oasis_runtime.serve.config_file import Override, load_config, parse_override
from oasis_runtime.serve.environment import server_environment
from oasis_runtime.serve.model_folder import ModelShape, read_shape
from oasis_runtime.serve.payload import EnginePayload
from oasis_runtime.serve.refusal import RefusalError, report
from oasis_runtime.serve.threads import CpuShare, read_quota
from oasis_runtime.serve.versions import (
    PLUGIN_NAME,
    installed_version,
    plugin_is_installed,
    version_problems,
)
from oasis_runtime.tiers import links, numa

_LOG = logging.getLogger("oasis_runtime")


def main(arguments: Sequence[str]) -> NoReturn:
    """Check everything, then become vLLM's server; exits with 78 and sentences if it cannot."""
    parsed = _parser().parse_args(arguments)
    logging.basicConfig(format="%(levelname)s oasis_runtime: %(message)s", level=logging.INFO)
    try:
        overrides = [parse_override(text) for text in parsed.set]
        if parsed.model is not None:
            overrides.append(Override(("model",), parsed.model, "--model"))
        payload = prepare(load_config(parsed.config, overrides, os.environ))
    except RefusalError as refusal:
        sys.exit(report(refusal))
    become_server(payload)


def prepare(config: EngineConfig) -> EnginePayload:
    """Versions, model, NUMA and links, in this order: the cheap and certain ones first.

    Raises:
        RefusalError: something keeps the engine from starting.
    """
    problems = [*version_problems(config.role, installed_version), *argument_problems(config)]
    if not plugin_is_installed():
        problems.append(
            f"the plugin {PLUGIN_NAME} is not installed in this Python, so vLLM would run "
            "without it; pip install oasiskv"
        )
    if problems:
        raise RefusalError(problems)
    shape = read_shape(config.model, config.dtype)
    placement = _check_numa(config, numa.HostView())
    measured = _measure_links(config, shape)
    return EnginePayload(config=_with_consequence(config, measured), links=measured, numa=placement)


def become_server(payload: EnginePayload) -> NoReturn:
    """Replace this process by vLLM's server, so that signals reach it and its logs are ours."""
    share = CpuShare(len(os.sched_getaffinity(0)), read_quota())
    environment = server_environment(payload.config, share, os.environ)
    command = [sys.executable, "-m", SERVER_MODULE, *server_arguments(payload)]
    _LOG.info("starting vLLM for model %s, role %s", payload.config.model, payload.config.role)
    logging.shutdown()
    os.execve(sys.executable, command, environment)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m oasis_runtime")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="serve a model over the OpenAI API")
    serve.add_argument("--config", type=Path, metavar="FILE", help="engine.yaml")
    serve.add_argument("--model", metavar="PATH", help="the model: a folder, or a hub name")
    serve.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY.PATH=VALUE",
        help="override one setting of the configuration, for example links.force=true",
    )
    return parser


def _check_numa(config: EngineConfig, host: numa.HostView) -> numa.NumaReport:
    placement = numa.read_placement((host.proc / "self/status").read_text())
    found = numa.judge(numa.read_topology(host), placement)
    if found.verdict is numa.Verdict.MISALIGNED and config.numa.policy == "required":
        raise RefusalError(
            [
                f"numa.policy is required and the process is not aligned: {found.reason}; "
                "pin the pod to one NUMA node or set numa.policy to preferred"
            ]
        )
    if config.numa.policy == "none" or found.node is None:
        _LOG.info("NUMA %s: %s; memory is not bound", found.verdict, found.reason)
        return found
    try:
        numa.prefer_memory_of(found.node)
    except OSError as error:
        _LOG.warning(
            "NUMA %s: %s; memory is not bound to node %d: %s (a container needs SYS_NICE for it)",
            found.verdict,
            found.reason,
            found.node,
            error.strerror,
        )
        return found
    _LOG.info("NUMA %s: %s; memory comes from node %d", found.verdict, found.reason, found.node)
    return replace(found, bound=True)


def _measure_links(config: EngineConfig, shape: ModelShape | None) -> links.LinkReport:
    page_bytes = (
        links.DEFAULT_PAGE_BYTES if shape is None else shape.page_bytes(config.tiers.block_tokens)
    )
    host = config.transfer.host
    speed = links.network_speed(host, links.interface_of(host))
    return links.LinkReport(
        host_fast=links.judge_host_fast(links.measure_copy(page_bytes), config.links),
        network=links.judge_network(config.role, speed, config.links),
    )


def _with_consequence(config: EngineConfig, measured: links.LinkReport) -> EngineConfig:
    for link in (measured.host_fast, measured.network):
        _LOG.info("link %s %s: %s", link.name, "on" if link.enabled else "off", link.reason)
    means = links.consequence(config.role, measured)
    if means.refusals:
        raise RefusalError(means.refusals)
    if means.dense is None or config.selection.mode == "dense":
        return config
    _LOG.warning("%s", means.dense)
    dense = config.selection.model_copy(update={"mode": "dense"})
    return config.model_copy(update={"selection": dense})
