"""The machine as the engine finds it: what is logged, what is refused, what is given up."""

from __future__ import annotations

import logging
from dataclasses import replace

from oasis_runtime.contract import EngineConfig, NumaConfig
from oasis_runtime.serve.model_folder import ModelShape
from oasis_runtime.serve.refusal import RefusalError
from oasis_runtime.tiers import links, numa

_LOG = logging.getLogger("oasis_runtime")


def check_numa(config: NumaConfig, host: numa.HostView) -> numa.NumaReport:
    """Judge where the process is and, unless the policy is ``none``, bind its memory there.

    Raises:
        RefusalError: the policy is ``required`` and the process is misaligned.
    """
    placement = numa.read_placement((host.proc / "self/status").read_text())
    found = numa.judge(numa.read_topology(host), placement)
    if found.verdict is numa.Verdict.MISALIGNED and config.policy == "required":
        raise RefusalError(
            [
                f"numa.policy is required and the process is not aligned: {found.reason}; "
                "pin the pod to one NUMA node or set numa.policy to preferred"
            ]
        )
    if config.policy == "none" or found.node is None:
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


def measure_links(config: EngineConfig, shape: ModelShape | None) -> links.LinkReport:
    """Measure both links of this machine with pages of this model, and hold them to their gates."""
    page_bytes = (
        links.DEFAULT_PAGE_BYTES if shape is None else shape.page_bytes(config.tiers.block_tokens)
    )
    host = config.transfer.host
    speed = links.network_speed(host, links.interface_of(host))
    return links.LinkReport(
        host_fast=links.judge_host_fast(links.measure_copy(page_bytes), config.links),
        network=links.judge_network(config.role, speed, config.links),
    )


def after_links(config: EngineConfig, measured: links.LinkReport) -> EngineConfig:
    """The configuration to go on with: as it is, or dense where the link is too slow for sparse.

    Raises:
        RefusalError: an engine with a peer has a link under its gate.
    """
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
