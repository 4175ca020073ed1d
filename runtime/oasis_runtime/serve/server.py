"""``python -m oasis_runtime.serve.server``: vLLM's OpenAI server, which SIGTERM ends at any time.

What :func:`vllm.entrypoints.launchers.api_server.entry.main` does (vLLM 0.32), but for its handler
of SIGTERM during the start; see :mod:`oasis_runtime.serve.termination`. The server's own handlers,
which drain, take the place of ours right before it listens. A server that ends without a signal has
lost its engine, and fails.

Of an engine on several nodes only one process serves. The others (``--headless``) compute for it,
and end with it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from oasis_runtime.serve import termination

EXIT_DIED = 1
"""The server ended, and nobody had asked for it."""


def main(arguments: Sequence[str]) -> int:
    """Serve until a signal; ``arguments`` are those of ``vllm serve``. Returns the exit status."""
    termination.end_at_once()
    # Only now: these take ten seconds and more.
    import uvloop
    from vllm.entrypoints.launchers.api_server.entry import run_server_worker
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.entrypoints.launchers.launcher import setup_server
    from vllm.entrypoints.serve.utils.api_utils import cli_env_setup
    from vllm.logger import configure_logging_from_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser
    from vllm.utils.system_utils import decorate_logs

    from oasis_runtime.serve.loop import ServerLoop

    cli_env_setup()  # type: ignore[no-untyped-call]
    parser = FlexibleArgumentParser()  # type: ignore[no-untyped-call]
    parsed = make_arg_parser(parser).parse_args(list(arguments))
    configure_logging_from_args(parsed)
    validate_parsed_serve_args(parsed)
    if parsed.headless:
        return _compute(parsed)
    decorate_logs("APIServer", skip_if_decorated=True)

    async def serve() -> None:
        address, listening = setup_server(parsed, reuse_port=False)
        await run_server_worker(address, listening, parsed)

    loop = ServerLoop()
    uvloop.run(serve(), loop_factory=lambda: loop)
    return 0 if loop.asked else _died()


def _compute(parsed: argparse.Namespace) -> int:
    """The ranks of this node, until a signal (``SystemExit``), or until one of them ends."""
    from vllm.entrypoints.cli.serve import run_headless

    parsed.api_server_count = 0
    run_headless(parsed)
    return _died()


def _died() -> int:
    sys.stderr.write("oasis_runtime: the engine has died; the log above says of what\n")
    return EXIT_DIED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
