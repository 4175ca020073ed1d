"""The command line of the engine, and the order in which things are checked."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from oasis_runtime.contract import EngineConfig, Role
from oasis_runtime.serve import termination
from oasis_runtime.serve.arguments import SERVER_MODULE, argument_problems, server_arguments
from oasis_runtime.serve.config_file import Override, load_config, parse_override
from oasis_runtime.serve.environment import server_environment
from oasis_runtime.serve.fast_tier import fast_tier_problem
from oasis_runtime.serve.machine import after_links, check_numa, measure_links
from oasis_runtime.serve.model_folder import check_heads, read_shape, weights
from oasis_runtime.serve.payload import EnginePayload
from oasis_runtime.serve.refusal import RefusalError, report
from oasis_runtime.serve.threads import CpuShare, read_quota
from oasis_runtime.serve.versions import (
    PLUGIN_NAME,
    installed_version,
    plugin_is_installed,
    version_problems,
)
from oasis_runtime.tiers.numa import HostView

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
    """Versions, model, sizes, NUMA and links, in this order: the cheap and certain ones first.

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
    check_heads(config.prediction)
    if (problem := fast_tier_problem(config, shape)) is not None:
        raise RefusalError([problem])
    placement = check_numa(config.numa, HostView())
    measured = measure_links(config, shape)
    return EnginePayload(
        config=after_links(config, measured),
        links=measured,
        numa=placement,
        weights="" if config.role is Role.BOTH else weights(config.model),
    )


def become_server(payload: EnginePayload) -> NoReturn:
    """Replace this process by vLLM's server, so that signals reach it and its logs are ours."""
    share = CpuShare(len(os.sched_getaffinity(0)), read_quota())
    environment = server_environment(payload.config, share, os.environ)
    command = [sys.executable, "-m", SERVER_MODULE, *server_arguments(payload)]
    _LOG.info("starting vLLM for model %s, role %s", payload.config.model, payload.config.role)
    logging.shutdown()
    termination.hold()
    try:
        os.execve(sys.executable, command, environment)
    except OSError as error:
        refusal = RefusalError(
            [f"vLLM cannot be started: {error.strerror}; check the length of extra_args"]
        )
        sys.exit(report(refusal))


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
